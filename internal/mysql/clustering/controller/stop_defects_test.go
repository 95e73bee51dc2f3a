// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// The tests in this file run real servers. Each test checks that Torpor does not have a certain defect of upstream's
// stop.

// TestSecondStopIsHonoured checks that a second stop soon after a start takes effect, and that the gauge reports it.
func TestSecondStopIsHonoured(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.stopClustering(t)
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	e.startClustering(t)
	e.stopClustering(t)
	e.waitForLooks(t) // Before that, the condition may still describe the first stop.
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	e.mustRun(t, 1, "root", "stop replica")
	checks := e.metricValue(t, "moco_cluster_checks_total")
	e.triggerPass(t)
	testenv.Eventually(t, "the manager has run a pass", func() error {
		return testenv.ErrorIf(e.metricValue(t, "moco_cluster_checks_total") <= checks, "not yet")
	})
	if got := e.query(t, 1, "select service_state from performance_schema.replication_connection_status"); got != "OFF" {
		t.Errorf("expected that no manager interferes, found the receiving thread %s", got)
	}
	if got := e.metricValue(t, "moco_cluster_clustering_stopped"); got != 1 {
		t.Errorf("expected the metric 1, found %v", got)
	}
}

// TestStopIsReachedWithoutSecret checks that a stop is reached without the Secret.
func TestStopIsReachedWithoutSecret(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e.createCluster(t, nil)
	e.startManager(t)
	cluster := e.waitForCondition(t, mocov1beta2.HealthyCondition, "False Incomplete")
	if c := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.ClusteringActiveCondition); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("expected clustering to be active, found %+v", c)
	}
	e.stopClustering(t)
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	e.startClustering(t)
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "True ClusteringActive")
}

// TestStopIsReachedWithoutPasswords checks that a stop is reached by a manager that starts without a password.
func TestStopIsReachedWithoutPasswords(t *testing.T) {
	t.Parallel()
	e := newEnvironmentWithServers(t)
	e.createCluster(t, nil)
	stop := e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.name.Namespace, Name: "moco-" + clusterName}}))
	e.stopClustering(t)
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	e.startClustering(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	stop()
	e.stopClustering(t)
	e.startManager(t)
	cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if cluster.Status.Pause == nil || cluster.Status.Pause.Unfinished == "" {
		t.Errorf("expected the record to report that the primary was not observed, found %+v", cluster.Status.Pause)
	}
}

// TestStopDuringSwitchoverLeavesPrimaryWritable checks that an interrupted switchover is withdrawn, and that the
// session of the client that delays it is not killed.
func TestStopDuringSwitchoverLeavesPrimaryWritable(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	// This client keeps the server from becoming read-only. After two seconds the manager would kill the client's
	// session.
	ctx, watcher := t.Context(), e.openSession(t, 0, "root")
	holder, err := e.openSession(t, 0, "app").Conn(ctx)
	testenv.ExpectNoError(t, errors.Join(err, watcher.PingContext(ctx)))
	if _, err := holder.ExecContext(ctx, "lock tables app.t write"); err != nil {
		t.Fatal(err)
	}
	e.requestStepDown(t, 0)
	testenv.Eventually(t, "the switchover is under way", func() error {
		const pending = "select count(*) from performance_schema.processlist where info like '%super_read_only = on%' and user = 'moco-admin'"
		var got string
		err := watcher.QueryRowContext(ctx, pending).Scan(&got)
		return errors.Join(err, testenv.ErrorIf(got != "1", "found %s", got))
	})
	e.stopClustering(t)
	cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if p := cluster.Status.Pause; p == nil || p.Unfinished != "" {
		t.Errorf("expected no unfinished work, found %+v", p)
	}
	if _, err := holder.ExecContext(ctx, "unlock tables"); err != nil {
		t.Errorf("expected the client to be left alone, found %v", err)
	}
	e.mustRun(t, cluster.Status.CurrentPrimaryIndex, "app", "insert into app.t (v) values ('after')")
}

// TestGaugesOfStoppedClusterAreBackAfterRestart checks that the gauges of a stopped cluster are exported after the
// manager restarts.
func TestGaugesOfStoppedClusterAreBackAfterRestart(t *testing.T) {
	t.Parallel()
	e := newEnvironmentWithServers(t)
	e.createCluster(t, map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true"})
	stop := e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.stopClustering(t)
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	stop()
	e.startManager(t)
	testenv.Eventually(t, "the metrics are back", func() error {
		got := e.metricValue(t, "moco_cluster_clustering_stopped")
		return testenv.ErrorIf(got != 1, "found %v", got)
	})
	for name, want := range map[string]float64{
		"moco_cluster_reconciliation_stopped": 1, "moco_cluster_available": 1, "moco_cluster_healthy": 1,
		"moco_cluster_replicas": instances, "moco_cluster_ready_replicas": instances, "moco_cluster_errant_replicas": 0,
	} {
		if got := e.metricValue(t, name); got != want {
			t.Errorf("%s: expected %v, found %v", name, want, got)
		}
	}
	e.mustRun(t, instances-1, "root", "stop replica sql_thread")
	testenv.Eventually(t, "the lag of the last instance grows while clustering is stopped", func() error {
		e.triggerPass(t)
		state, lag, waiting := e.metricValue(t, "torpor_mysql_state"), e.metricValue(t, "torpor_mysql_instance_lag_seconds"), e.metricValue(t, "torpor_mysql_waiting_sessions")
		clones := max(e.metricValue(t, "moco_instance_clone_count"), e.metricValue(t, "moco_instance_clone_failure_count"))
		return testenv.ErrorIf(state != 1 || lag <= 0 || waiting != 0 || clones != 0, "found the state %v, the lag %v, %v waiting and %v clones", state, lag, waiting, clones)
	})
}

// TestMetricsOfDeletedClusterGo checks that every series of a deleted cluster is removed.
func TestMetricsOfDeletedClusterGo(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.stopClustering(t)
	cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if len(e.gatherMetrics(t)) == 0 {
		t.Error("expected series while it exists, found none")
	}
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), cluster))
	testenv.Eventually(t, "no series is left", func() error {
		left := e.gatherMetrics(t)
		return testenv.ErrorIf(len(left) > 0, "found %v", left)
	})
	if err := e.Client.Get(t.Context(), e.name, cluster); !k8serrors.IsNotFound(err) {
		t.Errorf("expected the cluster to be gone, found %v", err)
	}
}

// TestConditionsOfStoppedClusterAreUnknown checks that Available and Healthy become Unknown, with their own reason and
// transition time.
func TestConditionsOfStoppedClusterAreUnknown(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	was := map[string]metav1.Time{}
	for _, c := range e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy").Status.Conditions {
		was[c.Type] = c.LastTransitionTime
	}
	testenv.Eventually(t, "a later second", func() error { // Transition times have a resolution of a second.
		return testenv.ErrorIf(!e.clock.Now().Truncate(time.Second).After(was[mocov1beta2.HealthyCondition].Time), "not yet")
	})
	e.stopClustering(t)
	cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	for _, kind := range []string{mocov1beta2.AvailableCondition, mocov1beta2.HealthyCondition} {
		c := meta.FindStatusCondition(cluster.Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionUnknown || c.Reason != mocov1beta2.ClusteringStoppedReason || !strings.HasPrefix(c.Message, "Clustering is stopped") {
			t.Errorf("%s: expected Unknown %s, found %+v", kind, mocov1beta2.ClusteringStoppedReason, c)
			continue
		}
		if before := was[kind]; !c.LastTransitionTime.After(before.Time) {
			t.Errorf("%s: expected a transition after %s, found %s", kind, before, c.LastTransitionTime)
		}
	}
}

// TestClusterStoppedAtCreationIsNotChanged checks that the status of a cluster that is stopped before its first pass is
// reported, and that its servers are not changed.
func TestClusterStoppedAtCreationIsNotChanged(t *testing.T) {
	t.Parallel()
	e := newEnvironmentWithServers(t)
	e.createCluster(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"})
	e.startManager(t)
	cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	for _, kind := range []string{mocov1beta2.AvailableCondition, mocov1beta2.HealthyCondition} {
		if c := meta.FindStatusCondition(cluster.Status.Conditions, kind); c == nil || c.Status != metav1.ConditionUnknown || c.Reason != mocov1beta2.ClusteringStoppedReason {
			t.Errorf("%s: expected Unknown %s, found %+v", kind, mocov1beta2.ClusteringStoppedReason, c)
		}
	}
	e.waitForLooks(t)
	for i := range instances {
		if got := e.query(t, i, "select concat(@@super_read_only, @@gtid_executed)"); got != "1" {
			t.Errorf("instance %d: expected that nothing was done, found %q", i, got)
		}
	}
	e.startClustering(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
}

// TestReplicaAheadOfPrimaryIsUnhealthy covers a replica that is ahead of the primary by transactions with the primary's
// UUID. The transactions are listed, a start is refused, and after a forced start the cluster is reported as unhealthy.
func TestReplicaAheadOfPrimaryIsUnhealthy(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.stopByPlugin(t)
	cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	p := cluster.Status.CurrentPrimaryIndex
	victim := (p + 1) % instances
	uuid := e.query(t, p, "select @@server_uuid")
	last := e.query(t, p, "select regexp_substr(@@gtid_executed, '[0-9]+$')")
	e.mustRun(t, victim, "root", fmt.Sprintf("set gtid_next = '%s:%s'", uuid, last+"0"), "begin", "commit", "set gtid_next = 'automatic'")
	ahead := uuid + ":" + last + "0"
	testenv.Eventually(t, "the status lists the transactions that are ahead", func() error {
		e.triggerPass(t)
		got := e.getCluster(t).Status.Instances[victim].AheadGTIDs
		return testenv.ErrorIf(got != ahead, "expected %s, found %q", ahead, got)
	})

	t.Log("A start is refused, and its findings are printed.")
	ran := e.runPlugin(t, "start", "clustering", clusterName)
	if ran.code != exit.Refused || !strings.Contains(ran.err, ahead) {
		t.Errorf("expected a refusal that lists %s, found %+v", ahead, ran)
	}
	if e.getCluster(t).Annotations[mocov1beta2.ClusteringStoppedAnnotation] != "true" {
		t.Error("expected the refused start to have changed nothing")
	}

	t.Log("A forced start leads to an unhealthy cluster, not a healthy one.")
	if ran := e.runPlugin(t, "start", "clustering", clusterName, "--force", "--wait"); ran.code != exit.Done {
		t.Fatalf("expected a start, found %+v", ran)
	}
	cluster = e.waitForCondition(t, mocov1beta2.HealthyCondition, "False Degraded")
	c := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.HealthyCondition)
	if want := fmt.Sprintf("instance %d ", victim); !strings.Contains(c.Message, want) || !strings.Contains(c.Message, ahead) {
		t.Errorf("expected a message about instance %d and %s, found %q", victim, ahead, c.Message)
	}
	if got := cluster.Status.ErrantReplicas; got != 0 {
		t.Errorf("expected the instance to be ahead and not errant, found %d errant", got)
	}
}

// TestStopSucceedsWhileOthersWrite checks that the plugin succeeds while other clients write to the object, preserves
// their changes, and waits until the stop is reached.
func TestStopSucceedsWhileOthersWrite(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	writes := 0
	others.Go(func() {
		for ctx.Err() == nil {
			obj := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: e.name.Namespace, Name: e.name.Name}}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/other":"%d"}}}`, writes)
			if err := e.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, patch)); err == nil {
				writes++
			}
		}
	})
	ran := e.runPlugin(t, "stop", "clustering", clusterName, "--wait")
	stop()
	others.Wait()
	if want := fmt.Sprintf("stopped clustering of MySQLCluster %q\n", e.name); ran.code != exit.Done || ran.out != want {
		t.Errorf("expected %q, found %+v", want, ran)
	}
	cluster := e.getCluster(t)
	if writes == 0 || cluster.Annotations["example.com/other"] != fmt.Sprint(writes-1) {
		t.Errorf("expected the last of %d writes of others to stand, found %v", writes, cluster.Annotations)
	}
	if c := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.ClusteringActiveCondition); c == nil || c.Status != metav1.ConditionFalse {
		t.Errorf("expected clustering to be stopped when the plugin reports it, found %+v", c)
	}
	if field := cluster.Status.Pause; field == nil || field.Clustering.By != "unknown (field manager kubectl-moco)" {
		t.Errorf("expected the requester of the stop, found %+v", field)
	}
}

// TestStartRemovesOtherAnnotationValues checks that an annotation value other than "true" is ignored, and that a start
// removes and reports the value.
func TestStartRemovesOtherAnnotationValues(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "True"})
	e.waitForLooks(t)
	if c := meta.FindStatusCondition(e.getCluster(t).Status.Conditions, mocov1beta2.ClusteringActiveCondition); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("expected that %q stops nothing, found %+v", "True", c)
	}
	ran := e.runPlugin(t, "start", "clustering", clusterName)
	if ran.code != exit.Done || !strings.Contains(ran.out, "already running") || !strings.Contains(ran.out, "removed") {
		t.Errorf("expected the plugin to report the running state and the removed annotation, found %+v", ran)
	}
	if left := e.getCluster(t).Annotations; slices.Contains(annotationNames(left), mocov1beta2.ClusteringStoppedAnnotation) {
		t.Errorf("expected the value to be gone, found %v", left)
	}
}
