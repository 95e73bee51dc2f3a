// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
)

// sortLabel is the label of the objects that the benchmark stops. Its value is the name of their benchKind.
const sortLabel = "bench"

// benchKind is a group of targets with the same kind and the same requester of stops.
type benchKind struct {
	kind
	sort string
	// isOfSlumber is true if a Slumber stops the objects.
	isOfSlumber bool
	// isBack reports whether an object has the same state as before the stop.
	isBack func(client.Object) bool
}

// benchKinds returns all kinds that users stop, and two that a Slumber stops: one with the stop in its status, and
// one with a switch.
func benchKinds() (all []benchKind) {
	hasEnded := func(k kind) func(client.Object) bool {
		return func(o client.Object) bool { return k.records(o)[0][0].EndedAt != nil }
	}
	for _, k := range allKinds() {
		one := benchKind{kind: k, sort: k.name, isBack: func(o client.Object) bool { return !k.isStopped(o) && isRestored(o) }}
		if k.name == clusterDeployments().name {
			one.isBack = hasEnded(k) // The spec of a ClusterDeployment is not written, so only the record shows the end.
		}
		all = append(all, one)
	}
	clusters, workloads := clusterDeployments(), deployments()
	clusters.records = func(o client.Object) [][]torporv1alpha1.StopRecord {
		cd, _ := o.(*hivev1.ClusterDeployment)
		return readScheduled(cd.Status.ScheduledStops)
	}
	workloads.records = func(o client.Object) [][]torporv1alpha1.StopRecord {
		return readScheduled(fieldswitch.ReadSwitch(o).Scheduled)
	}
	return append(all,
		benchKind{kind: clusters, sort: "ClusterDeploymentOfSlumber", isOfSlumber: true, isBack: hasEnded(clusters)},
		benchKind{kind: workloads, sort: "DeploymentOfSlumber", isOfSlumber: true, isBack: isRestored})
}

// isRestored reports whether no values are saved in the switch, and the replicas, if any, are three again.
func isRestored(o client.Object) bool {
	isScaled := true
	if u, isUnstructured := o.(*unstructured.Unstructured); isUnstructured {
		replicas, hasReplicas, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		isScaled = !hasReplicas || replicas == 3
	}
	return isScaled && len(fieldswitch.ReadSwitch(o).Saved) == 0
}

// readScheduled returns the stops of the only Slumber; an empty list if it has none yet.
func readScheduled(stops []torporv1alpha1.ScheduledStop) [][]torporv1alpha1.StopRecord {
	if len(stops) == 0 {
		return [][]torporv1alpha1.StopRecord{nil}
	}
	return [][]torporv1alpha1.StopRecord{stops[0].Stops}
}

// createSlumber creates a Slumber that stops the objects of its groups. Its window began up to an hour ago, and ends
// at the given time, which must be a whole minute.
func (h *managedHub) createSlumber(t *testing.T, until time.Time) {
	t.Helper()
	moment := func(at time.Time) string { return fmt.Sprintf("%d %d * * *", at.UTC().Minute(), at.UTC().Hour()) }
	s := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "nights"}}
	s.Spec.Windows = []torporv1alpha1.SlumberWindow{{Sleep: moment(until.Add(-time.Hour)), Wake: moment(until)}}
	s.Spec.Waves = []torporv1alpha1.SlumberWave{{Name: "all"}}
	for _, k := range benchKinds() {
		if k.isOfSlumber {
			target := torporv1alpha1.SlumberTarget{Kind: k.name, Selector: metav1.LabelSelector{MatchLabels: map[string]string{sortLabel: k.sort}}}
			s.Spec.Waves[0].Targets = append(s.Spec.Waves[0].Targets, target)
		}
	}
	h.ExpectCreated(t, s)
}
