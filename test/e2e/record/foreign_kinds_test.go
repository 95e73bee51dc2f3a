// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestPluginStopsAndStartsEveryExample stops and starts an object for each StopAdapter in the examples with kubectl
// torpor, as several users and with the manager's own program: status must report the state and the requester, and a
// start must restore exactly the old fields.
func TestPluginStopsAndStartsEveryExample(t *testing.T) {
	t.Parallel()
	h := newManagedHub(t)
	h.startManager(t)
	h.waitUntilNoted(t)
	for _, o := range testenv.ListForeignObjects() {
		if o.Example != "flux-kustomization" { // newManagedHub has already created the other StopAdapter.
			h.ApplyManifest(t, filepath.Join("..", "examples", "stopadapters", o.Example+".yaml"))
		}
	}
	for _, o := range testenv.ListForeignObjects() {
		t.Run(o.Example, func(t *testing.T) {
			t.Parallel()
			h.stopAndStart(t, o)
		})
	}
}

func (h *managedHub) stopAndStart(t *testing.T, o testenv.ForeignObject) {
	t.Helper()
	u := o.Build(t, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "example"})
	mapping, err := h.Client.RESTMapper().RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
	testenv.ExpectNoError(t, err)
	adapter := &torporv1alpha1.StopAdapter{ObjectMeta: metav1.ObjectMeta{Name: mapping.Resource.GroupResource().String()}}
	h.WaitForCondition(t, adapter, torporv1alpha1.StopAdapterReadyCondition, metav1.ConditionTrue, torporv1alpha1.StopAdapterRunningReason)
	h.ExpectCreated(t, u)
	before, name := u.DeepCopy(), adapter.Name+"/example"
	h.runPlugin(t, "alice", exit.Done, "stop", name, "--reason", "no budget", "--until", "8h")
	h.WaitFor(t, "alice stops the object", u, func() error {
		is := fieldswitch.ReadSwitch(u)
		return testenv.ErrorIf(!is.IsKept(u) || len(is.Records) != 1 || is.Records[0].By != "alice", "found %v", u.GetAnnotations())
	})
	if o.Stopping != "" {
		h.ReportForeignStatus(t, u, o.Stopping)
		h.expectStatus(t, name, foreignStatus{State: "stopping", By: "alice", Reason: "no budget", UntilBy: "alice", Stopped: true})
	}
	h.ReportForeignStatus(t, u, o.Asleep)
	h.runPlugin(t, "alice", exit.Done, "stop", name, "--wait")
	h.expectStatus(t, name, foreignStatus{State: "stopped", By: "alice", Reason: "no budget", UntilBy: "alice", Stopped: true})
	h.runPlugin(t, "carol", exit.Done, "start", name)
	h.WaitFor(t, "carol starts the object", u, func() error {
		is := fieldswitch.ReadSwitch(u)
		return testenv.ErrorIf(len(is.Saved) > 0 || len(is.Records) != 1 || is.Records[0].StartedBy != "carol", "found %v", u.GetAnnotations())
	})
	h.ReportForeignStatus(t, u, o.Awake)
	h.runPlugin(t, "carol", exit.Done, "start", name, "--wait")
	h.expectStatus(t, name, foreignStatus{State: "running", By: "carol"})
	if diff := cmp.Diff(before.Object["spec"], u.Object["spec"]); diff != "" {
		t.Errorf("spec (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(foreignAnnotations(before), foreignAnnotations(u)); diff != "" {
		t.Errorf("annotations of others (-before +after):\n%s", diff)
	}
}

// foreignAnnotations returns the annotations that do not concern stops.
func foreignAnnotations(u *unstructured.Unstructured) map[string]string {
	found := map[string]string{}
	for name, value := range u.GetAnnotations() {
		if !strings.HasPrefix(name, "torpor.dev/") {
			found[name] = value
		}
	}
	return found
}

// foreignStatus is a row of kubectl torpor status -o json.
type foreignStatus struct {
	State, By, Reason, UntilBy string
	Stopped                    bool
}

func (h *managedHub) expectStatus(t *testing.T, name string, want foreignStatus) {
	t.Helper()
	var rows []foreignStatus
	testenv.ExpectNoError(t, json.Unmarshal([]byte(h.runPlugin(t, "bob", exit.Done, "status", name, "-o", "json")), &rows))
	if len(rows) != 1 {
		t.Fatalf("expected one row of %s, found %+v", name, rows)
	}
	testenv.ExpectEqual(t, "the status of "+name, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", rows[0]))
}
