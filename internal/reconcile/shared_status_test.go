// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// writer is a controller that owns one condition and one field of a MySQLCluster.
type writer struct {
	name string
	// condition is nil if the controller has nothing to report.
	condition *decision.Condition
	cloned    bool
}

func (w *writer) pass(env *testenv.Environment) *reconcile.Pass[*mocov1beta2.MySQLCluster, int, int] {
	return &reconcile.Pass[*mocov1beta2.MySQLCluster, int, int]{
		Hub:     reconcile.Hub{Client: env.Client, Recorder: events.NewFakeRecorder(10), Clock: clock.RealClock{}, Owner: w.name},
		New:     func() *mocov1beta2.MySQLCluster { return &mocov1beta2.MySQLCluster{} },
		Observe: func(context.Context, *mocov1beta2.MySQLCluster) (int, error) { return 0, nil },
		Decide:  func(int) int { return 0 },
		Act:     func(context.Context, int, int) error { return nil },
		Report: func(cluster *mocov1beta2.MySQLCluster, _, _ int, _ *reconcile.RefusedError) reconcile.FollowUp {
			cluster.Status.Cloned = cluster.Status.Cloned || w.cloned
			if w.condition == nil {
				meta.RemoveStatusCondition(&cluster.Status.Conditions, w.name)
			} else {
				reconcile.SetConditions(&cluster.Status.Conditions, map[string]decision.Condition{w.name: *w.condition}, cluster.Generation, clock.RealClock{})
			}
			return reconcile.FollowUp{}
		},
		Status: reconcilestatus.Storage[*mocov1beta2.MySQLCluster]{IsShared: true},
	}
}

// reasons returns the reasons of all conditions, by type, as the API server stores them.
func reasons(t *testing.T, env *testenv.Environment, cluster *mocov1beta2.MySQLCluster) map[string]string {
	t.Helper()
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, c := range cluster.Status.Conditions {
		found[c.Type] = c.Reason
	}
	return found
}

func TestControllersWriteTheirOwnPartOfOneStatus(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	cluster := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: env.CreateNamespace(t), Name: "test"}, 3)
	env.ExpectCreated(t, cluster)
	// An older version of Torpor has written the whole status, including a condition that no controller reports any
	// more.
	before := cluster.DeepCopy()
	cluster.Status.Conditions = []metav1.Condition{
		{Type: "First", Status: "True", Reason: "Old", LastTransitionTime: metav1.Unix(1, 0)},
		{Type: "Second", Status: "True", Reason: "Old", LastTransitionTime: metav1.Unix(1, 0)},
	}
	if err := env.Client.Status().Patch(t.Context(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}

	first, second := &writer{name: "First", condition: new(decision.True("New", "")), cloned: true}, &writer{name: "Second", condition: new(decision.False("New", ""))}
	passes := []*reconcile.Pass[*mocov1beta2.MySQLCluster, int, int]{first.pass(env), second.pass(env)}
	reconcileAll := func() {
		t.Helper()
		for _, pass := range passes {
			if _, err := pass.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	reconcileAll()
	if diff := cmp.Diff(map[string]string{"First": "New", "Second": "New"}, reasons(t, env, cluster)); diff != "" {
		t.Errorf("conditions after the first applies (-want +got):\n%s", diff)
	}
	if !cluster.Status.Cloned {
		t.Error("expected the field of the first controller to stay when the second applies, found it gone")
	}
	version := cluster.ResourceVersion
	reconcileAll()
	if reasons(t, env, cluster); cluster.ResourceVersion != version {
		t.Errorf("expected no write when nothing changes, found version %s after %s", cluster.ResourceVersion, version)
	}
	second.condition = nil
	reconcileAll()
	if diff := cmp.Diff(map[string]string{"First": "New"}, reasons(t, env, cluster)); diff != "" {
		t.Errorf("conditions after the second controller has taken its own away (-want +got):\n%s", diff)
	}
}
