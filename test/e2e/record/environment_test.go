// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// olderKubernetes does not serve the policies that record requesters.
const olderKubernetes = "1.33"

// anotherProgram is a field manager, which does not identify the sender of a request.
const anotherProgram = "another-program"

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// hub is an API server with the policies of some features, and manager is the same hub with only the manager's
// permissions.
type hub struct {
	*testenv.Environment
	manager *testenv.Environment
}

func newHub(t testing.TB, features ...string) *hub {
	t.Helper()
	h := enableManager(t, testenv.Start(t))
	for _, feature := range features {
		h.ApplyManifest(t, "record/"+feature+".yaml") // The API server enforces it after a short delay.
	}
	return h
}

// newOlderHub returns a hub whose API server does not serve the policies that record requesters.
func newOlderHub(t testing.TB) *hub {
	t.Helper()
	return enableManager(t, testenv.StartOlder(t, olderKubernetes))
}

// enableManager grants the manager its permissions, and installs the policies that refuse false names.
func enableManager(t testing.TB, env *testenv.Environment) *hub {
	t.Helper()
	h := &hub{Environment: env}
	user := h.ApplyManagerRoles(t, metav1.NamespaceDefault)
	limited := *h.Environment
	limited.Config = h.ImpersonateUser(user)
	h.manager = &limited
	return h
}

func (h *hub) name(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: name}
}

// clientOf returns a client of a user with all permissions.
func (h *hub) clientOf(t *testing.T, who string) client.Client {
	t.Helper()
	c, err := client.New(h.ImpersonateUser(who, "system:masters"), client.Options{Scheme: h.Client.Scheme(), Mapper: h.Client.RESTMapper()})
	testenv.ExpectNoError(t, err)
	return c
}

// removePolicy removes the policy that records requesters. The policy loses its effect after a short delay.
func (h *hub) removePolicy(t *testing.T, policy string) {
	t.Helper()
	name := metav1.ObjectMeta{Name: policy}
	ctx := context.WithoutCancel(t.Context())
	testenv.ExpectNoError(t, errors.Join(
		h.Client.Delete(ctx, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: name}), h.Client.Delete(ctx, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: name}),
	))
}

// removeWebhooks allows changes to apps while no manager runs.
func (h *hub) removeWebhooks(t *testing.T) {
	t.Helper()
	for _, configurations := range []client.Object{&admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}} {
		testenv.ExpectNoError(t, h.Client.DeleteAllOf(t.Context(), configurations))
	}
}

// expectColumn expects a value in a column of kubectl.
func (h *hub) expectColumn(t *testing.T, of schema.GroupVersionResource, obj client.Object, column, want string) {
	t.Helper()
	table := h.GetTable(t, of, client.ObjectKeyFromObject(obj))
	for i, c := range table.ColumnDefinitions {
		if c.Name == column {
			testenv.ExpectEqual(t, "the column "+column, want, fmt.Sprint(table.Rows[0].Cells[i]))
			return
		}
	}
	t.Errorf("expected a column %s, found %+v", column, table.ColumnDefinitions)
}
