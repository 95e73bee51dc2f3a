// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// kind describes a kind that can be stopped, for tests of all kinds.
type kind struct {
	name string
	// build returns an object that is not stopped.
	build func(t testing.TB, h *hub, name string) client.Object
	// argument is the argument for the plugin; empty means the name in lower case.
	argument string
	// isScaled is true if its objects have Pods, which no controller creates in these tests.
	isScaled bool
	// list returns an empty list of the kind.
	list func() client.ObjectList
	// stop and start are the changes that stop an object, and start it again.
	stop, start map[string]any
	// notes are the annotations with the requester of a stop; startNotes those with the requester of a start.
	notes, startNotes []string
	// refusesForgery is true if a request that only changes the recorded requester is refused. For other kinds it is
	// corrected.
	refusesForgery bool
	// isStoppedWhenNew is true if an object that is created stopped has its creator as the requester.
	isStoppedWhenNew bool
	// isStopped reports the state of the switch, and records returns the lists of stops, one for each switch.
	isStopped func(client.Object) bool
	records   func(client.Object) [][]torporv1alpha1.StopRecord
}

// pageName returns the name of the kind on the page.
func (k kind) pageName() string { return cmp.Or(k.argument, k.name) }

func allKinds() []kind { return append(ownKinds(), switchedKinds()...) }

// TestEveryKindIsRecorded compares the kinds in these tests with all kinds that need no StopAdapter.
func TestEveryKindIsRecorded(t *testing.T) {
	t.Parallel()
	for _, k := range kinds.ListBuiltIn() {
		if !slices.ContainsFunc(allKinds(), func(of kind) bool { return of.name == k.GVK().Kind }) {
			t.Errorf("expected each kind in this package, found no %s; add it to ownKinds or switchedKinds", k.GVK().Kind)
		}
	}
}

// ownKinds returns the kinds whose status Torpor writes.
func ownKinds() []kind { return []kind{clusterDeployments(), mysqlClusters(), cfApps()} }

func clusterDeployments() kind {
	state := func(value hivev1.PowerState) map[string]any {
		return map[string]any{"spec": map[string]any{"powerState": value}}
	}
	return kind{
		name: "ClusterDeployment",
		list: func() client.ObjectList { return &hivev1.ClusterDeploymentList{} },
		build: func(_ testing.TB, h *hub, name string) client.Object {
			cd := testenv.BuildClusterDeployment(h.name(name), "missing", "missing")
			cd.Spec.PowerState = hivev1.PowerStateRunning
			return cd
		},
		stop: state(hivev1.PowerStateHibernating), start: state(hivev1.PowerStateRunning),
		notes: []string{torporv1alpha1.RequestedByAnnotation}, startNotes: []string{torporv1alpha1.RequestedByAnnotation}, isStoppedWhenNew: true,
		isStopped: func(o client.Object) bool {
			cd, _ := o.(*hivev1.ClusterDeployment)
			return cd.Spec.PowerState == hivev1.PowerStateHibernating
		},
		records: func(o client.Object) [][]torporv1alpha1.StopRecord {
			cd, _ := o.(*hivev1.ClusterDeployment)
			return [][]torporv1alpha1.StopRecord{cd.Status.Stops}
		},
	}
}

func mysqlClusters() kind {
	set := func(value, instances string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			mocov1beta2.ClusteringStoppedAnnotation: value, mocov1beta2.ReconciliationStoppedAnnotation: value, mocov1beta2.StoppedInstancesAnnotation: instances,
		}}}
	}
	notes := []string{mocov1beta2.ClusteringRequestedByAnnotation, mocov1beta2.ReconciliationRequestedByAnnotation, mocov1beta2.InstancesRequestedByAnnotation}
	return kind{
		name: "MySQLCluster",
		list: func() client.ObjectList { return &mocov1beta2.MySQLClusterList{} },
		build: func(t testing.TB, h *hub, name string) client.Object {
			t.Helper()
			return testenv.BuildMySQLCluster(t, h.name(name), 1)
		},
		stop: set("true", "[0]"), start: set("false", "[]"), notes: notes, startNotes: notes, isStoppedWhenNew: true,
		isStopped: func(o client.Object) bool {
			cluster, _ := o.(*mocov1beta2.MySQLCluster)
			return cluster.ClusteringStopped() || cluster.ReconciliationStopped() || cluster.Annotations[mocov1beta2.StoppedInstancesAnnotation] == "[0]"
		},
		records: func(o client.Object) [][]torporv1alpha1.StopRecord {
			cluster, _ := o.(*mocov1beta2.MySQLCluster)
			return [][]torporv1alpha1.StopRecord{cluster.Status.ClusteringStops, cluster.Status.ReconciliationStops, cluster.Status.InstanceStops}
		},
	}
}

func cfApps() kind {
	state := func(value korifiv1alpha1.AppState) map[string]any {
		return map[string]any{"spec": map[string]any{"desiredState": value}}
	}
	return kind{
		name: "CFApp",
		list: func() client.ObjectList { return &korifiv1alpha1.CFAppList{} },
		build: func(_ testing.TB, h *hub, name string) client.Object {
			app := testenv.BuildCFApp(h.name(name))
			app.Spec.DesiredState = korifiv1alpha1.StartedState
			return app
		},
		stop: state(korifiv1alpha1.StoppedState), start: state(korifiv1alpha1.StartedState),
		notes: []string{torporv1alpha1.RevisedByAnnotation}, startNotes: []string{torporv1alpha1.StartedByAnnotation}, refusesForgery: true,
		isStopped: func(o client.Object) bool {
			app, _ := o.(*korifiv1alpha1.CFApp)
			return app.Spec.DesiredState == korifiv1alpha1.StoppedState
		},
		records: func(o client.Object) [][]torporv1alpha1.StopRecord {
			app, _ := o.(*korifiv1alpha1.CFApp)
			return [][]torporv1alpha1.StopRecord{app.Status.Stops}
		},
	}
}

// annotated returns a change with additional annotations.
func annotated(change map[string]any, annotations map[string]string) map[string]any {
	all := map[string]any{}
	for name, value := range annotations {
		all[name] = value
	}
	changed := map[string]any{"metadata": map[string]any{"annotations": all}}
	for field, value := range change {
		if field != "metadata" {
			changed[field] = value
			continue
		}
		metadata, _ := value.(map[string]any)
		switches, _ := metadata["annotations"].(map[string]any)
		maps.Copy(all, switches)
	}
	return changed
}

// mergePatch returns the patch of a change.
func mergePatch(t testing.TB, change map[string]any) client.Patch {
	t.Helper()
	patch, err := json.Marshal(change)
	testenv.ExpectNoError(t, err)
	return client.RawPatch(client.Merge.Type(), patch)
}

// managedHub is a hub with all policies and webhooks, on which the manager's own program runs.
type managedHub struct {
	*hub
	binary, probes, webhooks string
}

func newManagedHub(t testing.TB) *managedHub {
	t.Helper()
	binary := testenv.TorporPath(t)
	return manageHub(t, newHub(t, features()...), binary)
}

// newOlderManagedHub returns a hub with webhooks instead of policies, which its API server does not serve.
func newOlderManagedHub(t testing.TB) *managedHub {
	t.Helper()
	binary := testenv.TorporPath(t)
	h := manageHub(t, newOlderHub(t), binary)
	h.InstallRecordWebhooks(t, "https://"+h.webhooks, nil, features()...)
	return h
}

// features returns the features for whose kinds requesters are recorded.
func features() []string { return []string{"hibernation", "mysql", "slumber", "workloads"} }

func manageHub(t testing.TB, of *hub, binary string) *managedHub {
	t.Helper()
	h := &managedHub{hub: of, binary: binary, probes: testenv.FreeAddress(t), webhooks: testenv.FreeAddress(t)}
	h.InstallWebhooks(t, "https://"+h.webhooks, nil)
	h.installForeignKinds(t)
	return h
}

// startManager runs the manager until the end of the test, or until it is killed.
func (h *managedHub) startManager(t testing.TB, flags ...string) *testenv.Process {
	t.Helper()
	return testenv.StartProcess(t, h.binary, append([]string{
		"manager", "--kubeconfig", h.KubeconfigPath(t), "--namespace", metav1.NamespaceDefault,
		"--metrics-address", "0", "--probe-address", h.probes, "--webhook-address", h.webhooks,
	}, flags...), nil)
}

// waitUntilNoted waits until the API server records the requesters of every kind.
func (h *managedHub) waitUntilNoted(t testing.TB) {
	t.Helper()
	h.WaitForAppAdmission(t, metav1.NamespaceDefault, korifiv1alpha1.FirstRevision)
	h.waitUntilKindsAreNoted(t)
}

// waitUntilKindsAreNoted waits until the API server records the requesters of all kinds but apps.
func (h *hub) waitUntilKindsAreNoted(t testing.TB) {
	t.Helper()
	for _, k := range allKinds() {
		if !k.isStoppedWhenNew {
			continue
		}
		testenv.Eventually(t, "stops of a "+k.name+" are recorded", func() error {
			tried := k.build(t, h, "tried")
			merge(t, tried, k.stop)
			if err := h.Client.Create(t.Context(), tried, client.DryRunAll); err != nil {
				return fmt.Errorf("try a creation: %w", err)
			}
			return testenv.ErrorIf(tried.GetAnnotations()[k.notes[0]] == "", "found no requester")
		})
	}
}

// merge applies a change to an object that is not sent yet.
func merge(t testing.TB, obj client.Object, change map[string]any) {
	t.Helper()
	if metadata, ok := change["metadata"].(map[string]any); ok {
		annotations := map[string]string{}
		maps.Copy(annotations, obj.GetAnnotations())
		changed, _ := metadata["annotations"].(map[string]any)
		for name, value := range changed {
			annotations[name], _ = value.(string)
		}
		obj.SetAnnotations(annotations)
	}
	if spec, ok := change["spec"]; ok {
		text, err := json.Marshal(map[string]any{"spec": spec})
		testenv.ExpectNoError(t, err)
		testenv.ExpectNoError(t, json.Unmarshal(text, obj))
	}
}
