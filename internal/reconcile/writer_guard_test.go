// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/otherwriter"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// guarded is a controller that only counts its passes, beside an upstream controller.
type guarded struct {
	env      *testenv.Environment
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	pass     *reconcile.Pass[*mocov1beta2.MySQLCluster, int, int]
	acts     int
}

func newGuarded(env *testenv.Environment) *guarded {
	g := &guarded{env: env, clock: clocktesting.NewFakeClock(time.Now()), recorder: events.NewFakeRecorder(10)}
	g.pass = &reconcile.Pass[*mocov1beta2.MySQLCluster, int, int]{
		Client: env.Client, Recorder: g.recorder, Clock: g.clock,
		Guard:   &reconcile.WriterGuard{Feature: "clustering", Upstream: otherwriter.MOCO(), Reader: env.Client},
		New:     func() *mocov1beta2.MySQLCluster { return &mocov1beta2.MySQLCluster{} },
		Observe: func(context.Context, *mocov1beta2.MySQLCluster) (int, error) { g.acts++; return 0, nil },
		Decide:  func(int) int { return 0 },
		Report: func(*mocov1beta2.MySQLCluster, int, int, *reconcile.RefusedError) reconcile.FollowUp {
			return reconcile.FollowUp{}
		},
	}
	return g
}

// reconcile runs passes and returns how often the object was written and the controller acted meanwhile, and the report.
func (g *guarded) reconcile(t *testing.T, cluster *mocov1beta2.MySQLCluster, passes int) (writes, acts int, report *metav1.Condition) {
	t.Helper()
	read := func() string {
		if err := g.env.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		return cluster.ResourceVersion
	}
	last, before := read(), g.acts
	for range passes {
		if _, err := g.pass.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
			t.Fatal(err)
		}
		if now := read(); now != last {
			writes, last = writes+1, now
		}
	}
	return writes, g.acts - before, meta.FindStatusCondition(cluster.Status.Conditions, torporv1alpha1.AnotherWriterCondition)
}

func (g *guarded) expect(t *testing.T, cluster *mocov1beta2.MySQLCluster, wantWrites int, words string) {
	t.Helper()
	const passes = 5
	writes, acts, report := g.reconcile(t, cluster, passes)
	if writes != wantWrites || acts != 0 || report == nil || report.Status != metav1.ConditionTrue || !strings.Contains(report.Message, words) {
		t.Errorf("expected %d writes in %d passes, no act and the words %q; found %d writes, %d acts and %v", wantWrites, passes, words, writes, acts, report)
	}
}

func TestObjectOfAnotherWriterIsLeftAlone(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	namespace := env.CreateNamespace(t)
	moco := client.FieldOwner("moco-controller")
	createByMOCO := func(name string) *mocov1beta2.MySQLCluster {
		cluster := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: namespace, Name: name}, 3)
		if err := env.Client.Create(t.Context(), cluster, moco); err != nil {
			t.Fatal(err)
		}
		return cluster
	}
	setHealthy := func(cluster *mocov1beta2.MySQLCluster) {
		t.Helper()
		cluster.Status.Conditions = []metav1.Condition{{Type: "Healthy", Status: "True", Reason: "Healthy", LastTransitionTime: metav1.Unix(1, 0)}}
		if err := env.Client.Status().Update(t.Context(), cluster, moco); err != nil {
			t.Fatal(err)
		}
	}
	const written = "MOCO has written it: its field manager is moco-controller. Torpor's clustering does nothing"

	t.Run("one report is all that is written", func(t *testing.T) {
		g, cluster := newGuarded(env), createByMOCO("written")
		setHealthy(cluster)
		g.expect(t, cluster, 1, written)
		if event := <-g.recorder.Events; len(g.recorder.Events) != 0 || !strings.HasPrefix(event, "Warning AnotherWriter MOCO has written it") {
			t.Errorf("expected one event, found %q and %d more", event, len(g.recorder.Events))
		}
		if !meta.IsStatusConditionTrue(cluster.Status.Conditions, "Healthy") {
			t.Error("expected the other writer's condition to stay, found it gone")
		}
		t.Log("A report that the other writer takes away comes again after ten minutes, not at once.")
		setHealthy(cluster)
		if writes, acts, report := g.reconcile(t, cluster, 5); writes != 0 || acts != 0 || report != nil {
			t.Errorf("expected nothing to be written, found %d writes, %d acts and %v", writes, acts, report)
		}
		g.clock.Step(10 * time.Minute)
		g.expect(t, cluster, 1, written)
		t.Log("Another feature of the same kind adds nothing.")
		other := newGuarded(env)
		other.pass.Guard.Feature = "provisioning"
		other.expect(t, cluster, 0, written)
		t.Log("The annotation hands the object over, and takes the report away.")
		env.ExpectAnnotated(t, cluster, map[string]string{torporv1alpha1.TakeOverAnnotation: "true"})
		if writes, acts, report := g.reconcile(t, cluster, 3); writes != 1 || acts != 2 || report != nil {
			t.Errorf("expected one write, two acts and no report, found %d, %d and %v", writes, acts, report)
		}
	})
	t.Run("a flag hands all objects over", func(t *testing.T) {
		g, cluster := newGuarded(env), createByMOCO("flag")
		g.pass.Guard.TakesOver = true
		if writes, acts, report := g.reconcile(t, cluster, 2); writes != 0 || acts != 2 || report != nil {
			t.Errorf("expected no write and two acts, found %d, %d and %v", writes, acts, report)
		}
	})
	t.Run("a controller that runs counts before it writes", func(t *testing.T) {
		g := newGuarded(env)
		cluster := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: namespace, Name: "new"}, 3)
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "moco"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("pod"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(g.clock.Now()))},
		}
		env.ExpectCreated(t, cluster, lease)
		g.expect(t, cluster, 1, fmt.Sprintf("MOCO runs: its Lease %s/moco is held", namespace))
		t.Log("When its Lease has run out the object is Torpor's.")
		g.clock.Step(time.Minute)
		if writes, acts, report := g.reconcile(t, cluster, 2); writes != 1 || acts != 1 || report != nil {
			t.Errorf("expected one write, one act and no report, found %d, %d and %v", writes, acts, report)
		}
	})
}
