// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// A stop in the middle of an operation; the one in the middle of a switchover is D3.

// TestStopDuringFailover: the replicas are fenced and one has yet to apply what it must not lose. The fence is taken
// back, in case that the primary is only out of sight, and a start finishes the failover.
func TestStopDuringFailover(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	release := make([]func(), 0, size)
	for i := 1; i < size; i++ {
		release = append(release, w.hold(t, i))
	}
	w.must(t, 0, "app", "insert into app.t (v) values ('late')")
	w.servers[0].Kill9(t)
	for i := 1; i < size; i++ {
		w.receiving(t, i, "OFF")
	}
	w.stopClustering(t)
	cluster := w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if p := cluster.Status.Pause; p == nil || !strings.Contains(p.Unfinished, "does not answer") {
		t.Errorf("expected it said that the primary does not answer, found %+v", p)
	}
	for i := 1; i < size; i++ {
		w.receiving(t, i, "ON", "CONNECTING")
		if got := w.ask(t, i, "select @@super_read_only"); got != "1" {
			t.Errorf("instance %d: expected nobody to be promoted, found super_read_only=%s", i, got)
		}
	}
	for _, let := range release {
		let()
	}
	w.startClustering(t)
	w.becomes(t, mocov1beta2.AvailableCondition, "True Degraded")
	w.servers[0].Start(t)
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	w.everywhere(t, "select group_concat(v order by id) from app.t", "first,late")
	w.oneWritable(t)
}

// TestStopDuringClone: the copy that is under way is finished, and no further one is begun.
func TestStopDuringClone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addServers(t)
	w.must(t, 0, "root", "set global read_only = 0", "create database app", "create table app.t (id int primary key)",
		"insert into app.t values (1), (2)", "set global super_read_only = 1")
	for i := 1; i < size; i++ {
		w.must(t, i, "root", "set global clone_autotune_concurrency = off", "set global clone_max_data_bandwidth = 10")
	}
	w.addCluster(t, nil)
	w.start(t)
	cloning := 0
	testenv.Eventually(t, "a copy is under way", func() error {
		for i := 1; i < size; i++ {
			if got, err := w.tryAsk(t, i, "select state from performance_schema.clone_status"); err == nil && got == "In Progress" {
				cloning = i
				return nil
			}
		}
		return errors.New("none is")
	})
	w.stopClustering(t)
	w.becomes(t, mocov1beta2.ClusteringActiveCondition, "True Quiescing")
	cluster := w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if p := cluster.Status.Pause; p == nil || p.Unfinished != "" {
		t.Errorf("expected nothing left, found %+v", p)
	}
	w.servers[cloning].WaitUntilReady(t) // It restarts when it is copied; nobody may be waited for who does not answer.
	w.oneWritable(t)
	if got := w.ask(t, cloning, "select count(*) from app.t"); got != "2" {
		t.Errorf("instance %d: expected a whole copy, found %s rows", cloning, got)
	}
	other := size - cloning
	w.looked(t)
	if got := w.ask(t, other, "select concat('x', @@gtid_executed, (select count(*) from performance_schema.clone_status))"); got != "x0" {
		t.Errorf("instance %d: expected no copy to be begun, found %s", other, got)
	}
	w.startClustering(t)
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	w.everywhere(t, "select count(*) from app.t", "2")
}

// TestPrimarySilent: a primary that is silent and alive is replaced, and when it speaks again nobody is told that a write
// is safe there.
func TestPrimarySilent(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	w.servers[0].Freeze(t)
	thawed := false
	t.Cleanup(func() {
		if !thawed {
			w.servers[0].Thaw(t)
		}
	})
	heir, value := w.acknowledged(t)
	w.servers[0].Thaw(t)
	thawed = true
	cluster := w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	if cluster.Status.CurrentPrimaryIndex != heir {
		t.Errorf("expected the primary %d, found %d", heir, cluster.Status.CurrentPrimaryIndex)
	}
	w.everywhere(t, "select group_concat(v order by id) from app.t", "first,"+value)
	w.oneWritable(t)
}

// TestRestartWhileStopped: a manager that starts while clustering is stopped repairs nothing, also after the primary has
// restarted and is read-only.
func TestRestartWhileStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addServers(t)
	w.addCluster(t, nil)
	stop := w.start(t)
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	w.quietly(t)
	stop()
	w.servers[0].Stop(t)
	w.servers[0].Start(t)
	w.start(t)
	testenv.Eventually(t, "the gauge is back at once", func() error {
		if got := w.value(t, "moco_cluster_clustering_stopped"); got != 1 {
			return fmt.Errorf("found %v", got)
		}
		return nil
	})
	w.looked(t)
	if got := w.ask(t, 0, "select @@super_read_only"); got != "1" {
		t.Errorf("expected the primary to be left as it is, found super_read_only=%s", got)
	}
	cluster := w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if got := cluster.Status.Instances[0].Writable; got == nil || *got {
		t.Errorf("expected the status to tell that the primary takes no writes, found %v", got)
	}
	w.startClustering(t)
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	w.oneWritable(t)
}

// TestStoppedInstance: one instance alone is left alone, and the others are looked after.
func TestStoppedInstance(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	w.annotate(t, map[string]string{mocov1beta2.StoppedInstancesAnnotation: "[2]"})
	testenv.Eventually(t, "the status says that it is left alone", func() error {
		if !w.cluster(t).Status.Instances[2].Stopped {
			return errors.New("not yet")
		}
		return nil
	})
	w.must(t, 1, "root", "stop replica")
	w.must(t, 2, "root", "stop replica")
	w.touch(t)
	w.receiving(t, 1, "ON")
	w.looked(t)
	w.receiving(t, 2, "OFF")
	w.demote(t, 0)
	testenv.Eventually(t, "the other one is the primary", func() error {
		if p := w.cluster(t).Status.CurrentPrimaryIndex; p != 1 {
			return fmt.Errorf("found %d", p)
		}
		return nil
	})
	w.becomes(t, mocov1beta2.AvailableCondition, "True Degraded")
	w.receiving(t, 2, "OFF")
	w.annotate(t, map[string]string{mocov1beta2.StoppedInstancesAnnotation: ""})
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	w.must(t, 1, "app", "insert into app.t (v) values ('after')")
	w.everywhere(t, "select group_concat(v order by id) from app.t", "first,after")
}

// TestPasswordRotated: who changes the administrator's password in the servers and in the Secret needs no restart.
func TestPasswordRotated(t *testing.T) {
	t.Parallel()
	w := healthyWorld(t)
	secret := w.secret(t)
	secret.Data[adminKey] = []byte("secret-b")
	if err := w.hub.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.must(t, 0, "root", "alter user 'moco-admin'@'%' identified by 'secret-b'")
	for i := range size { // Sessions that were let in with the old password go on until somebody ends them.
		w.killSessions(t, i, "moco-admin")
	}
	w.demote(t, 0)
	testenv.Eventually(t, "another instance is the primary", func() error {
		if w.cluster(t).Status.CurrentPrimaryIndex == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	w.oneWritable(t)
}

// hold keeps an instance from applying what it receives, until the returned function is called.
func (w *world) hold(t *testing.T, i int) func() {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	db := w.connect(t, i, "root")
	for _, statement := range []string{"set session wait_timeout = 300", "lock tables app.t read"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if _, err := db.ExecContext(ctx, "unlock tables"); err != nil {
			t.Errorf("let instance %d apply: %v", i, err)
		}
	}
}

// receiving waits until the receiving thread of an instance has one of some states.
func (w *world) receiving(t *testing.T, i int, states ...string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("the receiving thread of instance %d is %v", i, states), func() error {
		got, err := w.tryAsk(t, i, "select service_state from performance_schema.replication_connection_status")
		if err != nil || !slices.Contains(states, got) {
			return fmt.Errorf("found %q (%w)", got, err)
		}
		return nil
	})
}

// oneWritable demands that clients can write to the primary and to nobody else.
func (w *world) oneWritable(t *testing.T) {
	t.Helper()
	p := w.cluster(t).Status.CurrentPrimaryIndex
	for i := range w.servers {
		want := map[bool]string{true: "00", false: "11"}[i == p]
		if got := w.ask(t, i, "select concat(@@read_only, @@super_read_only)"); got != want {
			t.Errorf("instance %d of a cluster with the primary %d: expected read_only and super_read_only %s, found %s", i, p, want, got)
		}
	}
}

// killSessions ends the sessions of a user.
func (w *world) killSessions(t *testing.T, i int, user string) {
	t.Helper()
	ids := w.ask(t, i, "select group_concat(id) from performance_schema.processlist where user = '"+user+"'")
	for id := range strings.SplitSeq(ids, ",") {
		if id != "" {
			_ = w.run(t, i, "root", "kill "+id) // It may have ended meanwhile.
		}
	}
}

// TestStopThatCannotEnd: its time is over, and somebody keeps the manager from taking it back.
func TestStopThatCannotEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addCluster(t, nil)
	w.forbidStarts(t)
	end := w.clock.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	w.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true", torporv1alpha1.UntilAnnotation: end.Format(time.RFC3339)})
	w.start(t)
	testenv.Eventually(t, "it is overdue", func() error {
		late, said := w.value(t, "torpor_mysql_stop_overdue_seconds"), strings.Contains(w.log.String(), clustering.EventStopOverdue)
		if late < time.Minute.Seconds() || !said {
			return fmt.Errorf("found the metric %v and an event %t", late, said)
		}
		return nil
	})
	w.annotate(t, map[string]string{torporv1alpha1.UntilAnnotation: w.clock.Now().Add(time.Hour).Format(time.RFC3339)})
	testenv.Eventually(t, "it is not overdue any more", func() error {
		if late := w.value(t, "torpor_mysql_stop_overdue_seconds"); late != 0 {
			return fmt.Errorf("found the metric %v", late)
		}
		return nil
	})
}

// forbidStarts lets the API server refuse to take back a stop in the test's namespace.
func (w *world) forbidStarts(t *testing.T) {
	t.Helper()
	name := w.name.Namespace
	w.create(t, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"moco.cybozu.com"}, APIVersions: []string{"*"}, Resources: []string{"mysqlclusters"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: `!("` + mocov1beta2.ClusteringStoppedAnnotation + `" in oldObject.metadata.?annotations.orValue({})) ||
				"` + mocov1beta2.ClusteringStoppedAnnotation + `" in object.metadata.?annotations.orValue({})`}},
		},
	})
	w.create(t, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": name}}},
		},
	})
	w.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"})
	testenv.Eventually(t, "a start is refused", func() error {
		cluster := w.cluster(t)
		before := cluster.DeepCopy()
		cluster.Annotations = nil
		if err := w.hub.Client.Patch(t.Context(), cluster, client.MergeFrom(before), client.DryRunAll); err == nil {
			return errors.New("it is allowed")
		}
		return nil
	})
}
