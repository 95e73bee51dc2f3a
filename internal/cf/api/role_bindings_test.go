// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestAdminOfCFGivesRolesOnlyInOrgsAndSpaces tries to escalate the rights of a user who has only torpor-cf-admin. The
// user tries to bind a role in another namespace, with which the namespace's Secrets could be read.
func TestAdminOfCFGivesRolesOnlyInOrgsAndSpaces(t *testing.T) {
	e := shared.Get(t)
	space, plain := e.createSpace(t), e.CreateNamespace(t)
	ada := e.createCFAdmin(t)
	newBinding := func(namespace, role string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "ada-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "ada"}},
		}
	}
	// The API server enforces a policy only some time after its creation.
	testenv.Eventually(t, "the policy is enforced", func() error {
		if err := ada.Create(t.Context(), newBinding(plain, "torpor-space-developer")); !k8serrors.IsForbidden(err) {
			return errors.New("expected a role in a plain namespace to be refused, found it given")
		}
		return nil
	})
	for name, test := range map[string]struct {
		namespace, role string
		given           bool
	}{
		"the developer role in kube-system: refused":     {"kube-system", "torpor-space-developer", false},
		"the developer role in torpor-system: refused":   {system, "torpor-space-developer", false},
		"the auditor role in a plain namespace: refused": {plain, "torpor-space-auditor", false},
		"the role cluster-admin in a space: refused":     {space, "cluster-admin", false},
		"the Kubernetes role view in a space: refused":   {space, "view", false},
		"the developer role in a space: allowed":         {space, "torpor-space-developer", true},
		"the auditor role in a space: allowed":           {space, "torpor-space-auditor", true},
		"the user role in an org: allowed":               {e.org, "torpor-org-user", true},
	} {
		t.Run(name, func(t *testing.T) {
			binding := newBinding(test.namespace, test.role)
			err := ada.Create(t.Context(), binding)
			switch {
			case !test.given && !k8serrors.IsForbidden(err):
				t.Errorf("found %v, want Forbidden", err)
			case test.given && err != nil:
				t.Error(err)
			case test.given:
				if err := ada.Delete(t.Context(), binding); err != nil {
					t.Errorf("take it away: %v", err)
				}
			}
		})
	}
	for name, binding := range map[string]*rbacv1.RoleBinding{
		"a RoleBinding outside of orgs and spaces is not deleted":                          newBinding("kube-system", "view"),
		"a RoleBinding in a space to a ClusterRole other than the CF roles is not deleted": newBinding(space, "view"),
	} {
		t.Run(name, func(t *testing.T) {
			e.ExpectCreated(t, binding)
			if err := ada.Delete(t.Context(), binding); !k8serrors.IsForbidden(err) {
				t.Errorf("found %v, want Forbidden", err)
			}
			if err := e.Client.Delete(t.Context(), binding); err != nil {
				t.Errorf("found the administrator of the cluster refused: %v", err)
			}
		})
	}
}

// createCFAdmin returns a client of a user whose only role is torpor-cf-admin, in the whole cluster.
func (e *testEnv) createCFAdmin(t *testing.T) client.Client {
	t.Helper()
	cfg := rest.AnonymousClientConfig(e.Config)
	cfg.BearerToken = strings.TrimPrefix(e.adminCaller(t).authorization, "Bearer ")
	c, err := client.New(cfg, client.Options{Scheme: e.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// adminCaller returns a caller whose only role is torpor-cf-admin, in the whole cluster.
func (e *testEnv) adminCaller(t *testing.T) caller {
	t.Helper()
	namespace, user := e.createServiceAccount(t, "ada")
	e.ExpectCreated(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "ada-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-cf-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "ada"}},
	})
	e.awaitBinding(t, user, nil, "default")
	return e.callerOf(t, namespace, "ada")
}
