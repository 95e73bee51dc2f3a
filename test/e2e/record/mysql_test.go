// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	clusteringcontroller "github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	provisioningcontroller "github.com/torpor-dev/torpor/internal/mysql/provisioning/controller"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// mysqlHub is an API server with a MySQLCluster, which has no servers, and its controllers.
type mysqlHub struct {
	*hub
	cluster *mocov1beta2.MySQLCluster
	// stopManager ends the manager.
	stopManager func()
}

func newMySQLHub(t *testing.T) *mysqlHub {
	t.Helper()
	h := &mysqlHub{hub: newHub(t, "mysql")}
	testenv.Eventually(t, "requesters are recorded", func() error { return h.expectNoted(t, true) })
	h.stopManager = testenv.StartManager(t, h.manager, setUpMySQL)
	h.cluster = testenv.BuildMySQLCluster(t, h.name("test"), 1)
	h.ExpectCreated(t, h.cluster)
	h.WaitForCondition(t, h.cluster, mocov1beta2.ClusteringActiveCondition, metav1.ConditionTrue, "")
	return h
}

// expectNoted checks whether the API server records the creator of a stopped cluster. Its admission recognizes a new
// kind only after a delay.
func (h *mysqlHub) expectNoted(t *testing.T, want bool) error {
	t.Helper()
	tried := testenv.BuildMySQLCluster(t, h.name("tried"), 1)
	tried.Annotations = map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"}
	if err := h.Client.Create(t.Context(), tried, client.DryRunAll); err != nil {
		return fmt.Errorf("try a creation: %w", err)
	}
	found := tried.Annotations[mocov1beta2.ClusteringRequestedByAnnotation]
	return testenv.ErrorIf((found != "") != want, "expected a requester: %t, found %q", want, found)
}

// setUpMySQL adds the controllers that keep records of MySQLClusters.
func setUpMySQL(mgr ctrl.Manager) error {
	if err := setUpClustering(mgr); err != nil {
		return err
	}
	if err := (provisioningcontroller.Controller{Clock: clock.RealClock{}, Metrics: provisioningcontroller.NewMetrics()}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up provisioning: %w", err)
	}
	return nil
}

func setUpClustering(mgr ctrl.Manager) error {
	host := func(*mocov1beta2.MySQLCluster, int, *corev1.Pod) string { return "127.0.0.1" }
	if err := (clusteringcontroller.Controller{HostOf: host, Clock: clock.RealClock{}, Metrics: clusteringcontroller.NewMetrics()}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up clustering: %w", err)
	}
	return nil
}

// annotate writes annotations as a user, with another program's name as the field manager. Empty values remove
// annotations.
func (h *hub) annotate(t *testing.T, who string, obj client.Object, annotations map[string]string) {
	t.Helper()
	values := map[string]*string{}
	for name, value := range annotations {
		if values[name] = nil; value != "" {
			values[name] = &value
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, h.clientOf(t, who).Patch(t.Context(), obj, client.RawPatch(client.Merge.Type(), patch), client.FieldOwner(anotherProgram)))
}

// expectStops waits until the newest stop of each record has the given requester, and the given user as the one who
// ended it. The latter is empty while the stop is in effect.
func (h *mysqlHub) expectStops(t *testing.T, what string, clusteringBy, reconciliationBy, instancesBy [2]string) {
	t.Helper()
	h.WaitFor(t, what, h.cluster, func() error {
		for name, one := range map[string]struct {
			want  [2]string
			found []torporv1alpha1.StopRecord
		}{
			"clustering":     {clusteringBy, h.cluster.Status.ClusteringStops},
			"reconciliation": {reconciliationBy, h.cluster.Status.ReconciliationStops},
			"instances":      {instancesBy, h.cluster.Status.InstanceStops},
		} {
			found := [2]string{}
			if len(one.found) > 0 {
				found[0] = one.found[0].By
			}
			if len(one.found) > 0 && one.found[0].EndedAt != nil {
				found[1] = one.found[0].StartedBy
			}
			if found != one.want {
				return fmt.Errorf("%s: expected a stop by %q that was ended by %q, found %+v", name, one.want[0], one.want[1], one.found)
			}
		}
		return nil
	})
}

// TestStopsOfAMySQLClusterAreNoted stops each part as a different user with a forged requester, and starts each part
// again as a further user.
func TestStopsOfAMySQLClusterAreNoted(t *testing.T) {
	t.Parallel()
	h := newMySQLHub(t)
	nobody := [2]string{}
	h.annotate(t, "alice", h.cluster, map[string]string{
		mocov1beta2.ClusteringStoppedAnnotation: "true", torporv1alpha1.UntilAnnotation: "8h", torporv1alpha1.ReasonAnnotation: "a change of disks",
		mocov1beta2.ClusteringReasonAnnotation: "a backup", mocov1beta2.ClusteringUntilAnnotation: "9h",
		mocov1beta2.ClusteringRequestedByAnnotation: "the-ceo", mocov1beta2.ClusteringRequestVersionAnnotation: "none", mocov1beta2.InstancesRequestedByAnnotation: "the-ceo",
	})
	h.expectStops(t, "alice stops clustering", [2]string{"alice"}, nobody, nobody)
	if stop := h.cluster.Status.ClusteringStops[0]; stop.Reason != "a backup" || stop.Until == nil || stop.Until.Sub(stop.Since.Time).Hours() != 9 {
		t.Errorf("expected a reason and an end of its own, after nine hours, found %+v", stop)
	}
	h.annotate(t, "bob", h.cluster, map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true", mocov1beta2.ClusteringRequestedByAnnotation: "the-ceo"})
	h.annotate(t, "carol", h.cluster, map[string]string{
		mocov1beta2.StoppedInstancesAnnotation: "[0]", mocov1beta2.InstancesUntilAnnotation: "10h", mocov1beta2.ClusteringRequestedByAnnotation: "",
	})
	h.expectStops(t, "each part has its own requester", [2]string{"alice"}, [2]string{"bob"}, [2]string{"carol"})
	for annotation, want := range map[string]string{
		mocov1beta2.ClusteringRequestedByAnnotation: "alice", mocov1beta2.ReconciliationRequestedByAnnotation: "bob", mocov1beta2.InstancesRequestedByAnnotation: "carol",
	} {
		testenv.ExpectEqual(t, annotation, want, h.cluster.Annotations[annotation])
	}
	if stop := h.cluster.Status.ReconciliationStops[0]; stop.Reason != "a change of disks" || stop.RequestedUntil != "8h" {
		t.Errorf("expected an end and a reason for each stop, found %+v", stop)
	}
	if pause := h.cluster.Status.Pause; pause == nil || pause.Clustering.By != "alice" || pause.Reconciliation.By != "bob" {
		t.Errorf("expected the requester in status.pause, found %+v", pause)
	}
	h.expectColumn(t, mocov1beta2.GroupVersion().WithResource("mysqlclusters"), h.cluster, "By", "alice")

	h.annotate(t, "dave", h.cluster, map[string]string{
		mocov1beta2.ClusteringStoppedAnnotation: "", mocov1beta2.StoppedInstancesAnnotation: "",
	})
	for _, leftover := range []string{mocov1beta2.ClusteringReasonAnnotation, mocov1beta2.ClusteringUntilAnnotation, mocov1beta2.InstancesUntilAnnotation} {
		if value, isThere := h.cluster.Annotations[leftover]; isThere {
			t.Errorf("expected %s to go with its stop in the same request, found %q", leftover, value)
		}
	}
	h.expectStops(t, "dave starts two of three", [2]string{"alice", "dave"}, [2]string{"bob"}, [2]string{"carol", "dave"})
	testenv.ExpectEqual(t, "the end of the last stop", "8h", h.cluster.Annotations[torporv1alpha1.UntilAnnotation])
	h.annotate(t, "erin", h.cluster, map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: ""})
	h.expectStops(t, "erin starts the last", [2]string{"alice", "dave"}, [2]string{"bob", "erin"}, [2]string{"carol", "dave"})
	for _, leftover := range []string{torporv1alpha1.UntilAnnotation, torporv1alpha1.ReasonAnnotation} {
		if value, isThere := h.cluster.Annotations[leftover]; isThere {
			t.Errorf("expected %s to go with the last stop, found %q", leftover, value)
		}
	}
}

// TestStopsOfAMySQLClusterEndByThemselves sets an end as a duration, and an invalid one.
func TestStopsOfAMySQLClusterEndByThemselves(t *testing.T) {
	t.Parallel()
	h := newMySQLHub(t)
	h.annotate(t, "alice", h.cluster, map[string]string{
		mocov1beta2.ClusteringStoppedAnnotation: "true", mocov1beta2.ReconciliationStoppedAnnotation: "true", mocov1beta2.StoppedInstancesAnnotation: "[0]",
		torporv1alpha1.UntilAnnotation: "tomorrow",
	})
	h.WaitForEvent(t, h.cluster.Namespace, stoprecord.EventAnnotationIgnored, `found "tomorrow"`)
	h.annotate(t, "alice", h.cluster, map[string]string{torporv1alpha1.UntilAnnotation: "1s"})
	byItself := [2]string{"alice", torporv1alpha1.UntilAnnotation}
	h.expectStops(t, "all end automatically", byItself, byItself, byItself)
	h.WaitFor(t, "nothing is left of the stops", h.cluster, func() error {
		for _, name := range []string{
			mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ReconciliationStoppedAnnotation, mocov1beta2.StoppedInstancesAnnotation, torporv1alpha1.UntilAnnotation,
		} {
			if value, isThere := h.cluster.Annotations[name]; isThere {
				return fmt.Errorf("found %s=%s", name, value)
			}
		}
		return nil
	})
}

// TestTheEndOfAStopIsRecordedAfterAnOutage changes the end of stops while no manager runs, so that it has passed
// when the next one starts.
func TestTheEndOfAStopIsRecordedAfterAnOutage(t *testing.T) {
	t.Parallel()
	h := newMySQLHub(t)
	h.annotate(t, "alice", h.cluster, map[string]string{
		mocov1beta2.ClusteringStoppedAnnotation: "true", mocov1beta2.ReconciliationStoppedAnnotation: "true", mocov1beta2.StoppedInstancesAnnotation: "[0]",
		torporv1alpha1.UntilAnnotation: "48h",
	})
	holds := [2]string{"alice"}
	h.expectStops(t, "all parts are stopped", holds, holds, holds)
	h.stopManager()
	const rest = 3 * time.Second
	h.annotate(t, "alice", h.cluster, map[string]string{torporv1alpha1.UntilAnnotation: rest.String()})
	changed := time.Now()
	testenv.Eventually(t, "the end time has passed", func() error { return testenv.ErrorIf(time.Since(changed) <= rest, "it has not yet") })
	stopClustering := testenv.StartManager(t, h.manager, setUpClustering)
	byItself := [2]string{"alice", torporv1alpha1.UntilAnnotation}
	h.expectStops(t, "clustering continues before a pass of the other controller", byItself, holds, byItself)
	stopClustering()
	testenv.StartManager(t, h.manager, setUpMySQL)
	h.expectStops(t, "all end automatically", byItself, byItself, byItself)
	for _, stops := range [][]torporv1alpha1.StopRecord{h.cluster.Status.ClusteringStops, h.cluster.Status.ReconciliationStops, h.cluster.Status.InstanceStops} {
		if stop := stops[0]; stop.Until == nil || stop.Until.After(changed.Add(rest)) || stop.EndedAt == nil || stop.Requested {
			t.Errorf("expected an end %s after the change at %s, found %+v", rest, changed, stop)
		}
	}
}

// TestUnrecordedStopHasAnUnknownRequester stops clustering on an API server that has only the policy that refuses
// false names.
func TestUnrecordedStopHasAnUnknownRequester(t *testing.T) {
	t.Parallel()
	h := newMySQLHub(t)
	h.removePolicy(t, "torpor-mysql-record")
	testenv.Eventually(t, "requesters are not recorded", func() error { return h.expectNoted(t, false) })
	forged := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true",%q:"the-ceo"}}}`, mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ClusteringRequestedByAnnotation)
	testenv.ExpectRefused(t, h.clientOf(t, "carol").Patch(t.Context(), h.cluster.DeepCopy(), client.RawPatch(client.Merge.Type(), forged)),
		"expected carol, the user of the request, or the earlier value; found another name")
	h.annotate(t, "carol", h.cluster, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"})
	unknown := "unknown (field manager " + anotherProgram + ")"
	h.expectStops(t, "the requester is unknown", [2]string{unknown}, [2]string{}, [2]string{})
	h.WaitForEvent(t, h.cluster.Namespace, stoprecord.EventRequesterUnknown, unknown)
}
