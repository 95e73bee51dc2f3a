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
	"github.com/torpor-dev/torpor/internal/testenv"
)

// Upstream's ten defects of a pause, D1 to D10: what somebody would notice of each, with real servers.

// TestD1StopStartStop: upstream goes on in secret after a second stop (D1).
func TestD1StopStartStop(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	w.stopClustering(t)
	w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	w.startClustering(t)
	w.stopClustering(t)
	w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	w.must(t, 1, "root", "stop replica")
	checks := w.value(t, "moco_cluster_checks_total")
	w.touch(t)
	testenv.Eventually(t, "somebody has looked", func() error {
		if w.value(t, "moco_cluster_checks_total") <= checks {
			return errors.New("not yet")
		}
		return nil
	})
	if got := w.ask(t, 1, "select service_state from performance_schema.replication_connection_status"); got != "OFF" {
		t.Errorf("expected that nobody interferes, found the receiving thread %s", got)
	}
	if got := w.value(t, "moco_cluster_clustering_stopped"); got != 1 {
		t.Errorf("expected the metric 1, found %v", got)
	}
}

// TestD2StopWithoutSecret: upstream never applies a stop while something else fails (D2).
func TestD2StopWithoutSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addCluster(t, nil)
	w.start(t)
	cluster := w.becomes(t, mocov1beta2.HealthyCondition, "False Incomplete")
	if c := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.ClusteringActiveCondition); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("expected clustering to be active, found %+v", c)
	}
	w.stopClustering(t)
	w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	w.startClustering(t)
	w.becomes(t, mocov1beta2.ClusteringActiveCondition, "True ClusteringActive")
}

// TestD2StopWithoutSecretInService: and a stop is reached when a manager starts that cannot ask anybody.
func TestD2StopWithoutSecretInService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addServers(t)
	w.addCluster(t, nil)
	stop := w.start(t)
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	if err := w.hub.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.name.Namespace, Name: "moco-" + theName}}); err != nil {
		t.Fatal(err)
	}
	w.stopClustering(t)
	w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	w.startClustering(t)
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	stop()
	w.stopClustering(t)
	w.start(t)
	cluster := w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if cluster.Status.Pause == nil || cluster.Status.Pause.Unfinished == "" {
		t.Errorf("expected it said that the primary was not asked, found %+v", cluster.Status.Pause)
	}
}

// TestD3StopDuringSwitchover: upstream leaves the primary read-only (D3).
func TestD3StopDuringSwitchover(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	// A client that holds the server back from becoming read-only.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	holder, err := w.connect(t, 0, "app").Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.ExecContext(ctx, "lock tables app.t write"); err != nil {
		t.Fatal(err)
	}
	w.demote(t, 0)
	testenv.Eventually(t, "the switchover is under way", func() error {
		if got := w.ask(t, 0, "select count(*) from performance_schema.processlist where info like '%super_read_only = on%' and user = 'moco-admin'"); got != "1" {
			return fmt.Errorf("found %s", got)
		}
		return nil
	})
	w.stopClustering(t)
	cluster := w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if p := cluster.Status.Pause; p == nil || p.Unfinished != "" {
		t.Errorf("expected nothing left, found %+v", p)
	}
	if _, err := holder.ExecContext(ctx, "unlock tables"); err != nil {
		t.Errorf("expected the client to be left alone, found %v", err)
	}
	w.must(t, cluster.Status.CurrentPrimaryIndex, "app", "insert into app.t (v) values ('after')")
}

// TestD4GaugesAfterRestart: upstream has no gauge of a paused cluster after a restart, so that alerts go blind.
func TestD4GaugesAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addServers(t)
	w.addCluster(t, map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true"})
	stop := w.start(t)
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	w.stopClustering(t)
	w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	stop()
	w.start(t)
	testenv.Eventually(t, "the metrics are back", func() error {
		if got := w.value(t, "moco_cluster_clustering_stopped"); got != 1 {
			return fmt.Errorf("found %v", got)
		}
		return nil
	})
	for name, want := range map[string]float64{
		"moco_cluster_reconciliation_stopped": 1, "moco_cluster_available": 0, "moco_cluster_healthy": 0,
		"moco_cluster_replicas": size, "moco_cluster_ready_replicas": size, "moco_cluster_errant_replicas": 0,
	} {
		if got := w.value(t, name); got != want {
			t.Errorf("%s: expected %v, found %v", name, want, got)
		}
	}
}

// TestD5DeletedWhileStopped: upstream keeps seventeen series of a cluster that is gone.
func TestD5DeletedWhileStopped(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	w.stopClustering(t)
	cluster := w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if len(w.series(t)) == 0 {
		t.Error("expected series while it exists, found none")
	}
	if err := w.hub.Client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "no series is left", func() error {
		if left := w.series(t); len(left) > 0 {
			return fmt.Errorf("found %v", left)
		}
		return nil
	})
	if err := w.hub.Client.Get(t.Context(), w.name, cluster); !k8serrors.IsNotFound(err) {
		t.Errorf("expected the cluster to be gone, found %v", err)
	}
}

// TestD6UnknownIsHonest: upstream keeps the reason Healthy and the time of the former status.
func TestD6UnknownIsHonest(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	was := map[string]metav1.Time{}
	for _, c := range w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy").Status.Conditions {
		was[c.Type] = c.LastTransitionTime
	}
	testenv.Eventually(t, "a later second", func() error { // A transition time has seconds.
		if !w.clock.Now().Truncate(time.Second).After(was[mocov1beta2.HealthyCondition].Time) {
			return errors.New("not yet")
		}
		return nil
	})
	w.stopClustering(t)
	cluster := w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
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

// TestD7StoppedFromBirth: upstream shows blank columns of a cluster that is paused before it has ever reported, and
// nothing is done to its servers.
func TestD7StoppedFromBirth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addServers(t)
	w.addCluster(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"})
	w.start(t)
	cluster := w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	for _, kind := range []string{mocov1beta2.AvailableCondition, mocov1beta2.HealthyCondition} {
		if c := meta.FindStatusCondition(cluster.Status.Conditions, kind); c == nil || c.Status != metav1.ConditionUnknown || c.Reason != mocov1beta2.ClusteringStoppedReason {
			t.Errorf("%s: expected Unknown %s, found %+v", kind, mocov1beta2.ClusteringStoppedReason, c)
		}
	}
	w.looked(t)
	for i := range size {
		if got := w.ask(t, i, "select concat(@@super_read_only, @@gtid_executed)"); got != "1" {
			t.Errorf("instance %d: expected that nothing was done, found %q", i, got)
		}
	}
	w.startClustering(t)
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
}

// TestD8AheadUnderThePrimarysUUID: upstream calls such a replica healthy; when the primary reaches the number, the
// replica skips the row, and nobody knows.
func TestD8AheadUnderThePrimarysUUID(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	w.quietly(t)
	cluster := w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	p := cluster.Status.CurrentPrimaryIndex
	victim := (p + 1) % size
	uuid := w.ask(t, p, "select @@server_uuid")
	last := w.ask(t, p, "select regexp_substr(@@gtid_executed, '[0-9]+$')")
	w.must(t, victim, "root", fmt.Sprintf("set gtid_next = '%s:%s'", uuid, last+"0"), "begin", "commit", "set gtid_next = 'automatic'")
	ahead := uuid + ":" + last + "0"
	testenv.Eventually(t, "the status names what is ahead", func() error {
		w.touch(t)
		if got := w.cluster(t).Status.Instances[victim].AheadGTIDs; got != ahead {
			return fmt.Errorf("expected %s, found %q", ahead, got)
		}
		return nil
	})

	t.Log("A start is refused; what it would meet is said.")
	ran := w.moco(t, "start", "clustering", theName)
	if ran.code != exit.Refused || !strings.Contains(ran.err, ahead) {
		t.Errorf("expected a refusal that names %s, found %+v", ahead, ran)
	}
	if w.cluster(t).Annotations[mocov1beta2.ClusteringStoppedAnnotation] != "true" {
		t.Error("expected the refused start to have changed nothing")
	}

	t.Log("Who forces it sees an unhealthy cluster, not a healthy one.")
	if ran := w.moco(t, "start", "clustering", theName, "--force", "--wait"); ran.code != exit.Done {
		t.Fatalf("expected a start, found %+v", ran)
	}
	cluster = w.becomes(t, mocov1beta2.HealthyCondition, "False Degraded")
	c := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.HealthyCondition)
	if want := fmt.Sprintf("instance %d ", victim); !strings.Contains(c.Message, want) || !strings.Contains(c.Message, ahead) {
		t.Errorf("expected a message about instance %d and %s, found %q", victim, ahead, c.Message)
	}
	if got := cluster.Status.ErrantReplicas; got != 0 {
		t.Errorf("it is ahead and not errant; found %d errant", got)
	}
}

// TestD9StopWhileOthersWrite: upstream's plugin replaces the whole object, fails on a conflict, and says "stopped" when
// only an annotation is set.
func TestD9StopWhileOthersWrite(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	writes := 0
	others.Go(func() {
		for ctx.Err() == nil {
			obj := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.name.Namespace, Name: w.name.Name}}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/other":"%d"}}}`, writes)
			if err := w.hub.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, patch)); err == nil {
				writes++
			}
		}
	})
	ran := w.moco(t, "stop", "clustering", theName, "--wait")
	stop()
	others.Wait()
	if want := fmt.Sprintf("stopped clustering of MySQLCluster %q\n", w.name); ran.code != exit.Done || ran.out != want {
		t.Errorf("expected %q, found %+v", want, ran)
	}
	cluster := w.cluster(t)
	if writes == 0 || cluster.Annotations["example.com/other"] != fmt.Sprint(writes-1) {
		t.Errorf("expected the last of %d writes of others to stand, found %v", writes, cluster.Annotations)
	}
	if c := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.ClusteringActiveCondition); c == nil || c.Status != metav1.ConditionFalse {
		t.Errorf("expected it to be really stopped when the plugin says so, found %+v", c)
	}
	if field := cluster.Status.Pause; field == nil || field.Clustering.By != "kubectl-moco" {
		t.Errorf("expected who stopped it, found %+v", field)
	}
}

// TestD10OtherValuesGo: upstream's plugin leaves a value other than "true" where it is and says that clustering runs.
func TestD10OtherValuesGo(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	w.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "True"})
	w.looked(t)
	if c := meta.FindStatusCondition(w.cluster(t).Status.Conditions, mocov1beta2.ClusteringActiveCondition); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("expected that %q stops nothing, found %+v", "True", c)
	}
	ran := w.moco(t, "start", "clustering", theName)
	if ran.code != exit.Done || !strings.Contains(ran.out, "already running") || !strings.Contains(ran.out, "removed") {
		t.Errorf("expected it said that it runs and what was removed, found %+v", ran)
	}
	if left := w.cluster(t).Annotations; slices.Contains(keys(left), mocov1beta2.ClusteringStoppedAnnotation) {
		t.Errorf("expected the value to be gone, found %v", left)
	}
}
