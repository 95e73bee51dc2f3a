// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// TestScheduleChangesAreReported observes a Slumber before and after its controller has seen the new generation.
func TestScheduleChangesAreReported(t *testing.T) {
	t.Parallel()
	written := metav1.NewTime(time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC))
	wake := torporv1alpha1.SlumberTransition{To: torporv1alpha1.SlumberAwake, At: metav1.NewTime(written.Add(19 * time.Hour))}
	plan := slumber.Plan{
		Ready: decision.True("AsWished", ""), Stalled: decision.False("AsExpected", ""),
		Status: torporv1alpha1.SlumberStatus{ObservedGeneration: 2, NextTransitions: []torporv1alpha1.SlumberTransition{wake}},
	}
	bySlumber := decision.Request{Requester: "Slumber nights", Reason: "no budget", Until: "2026-11-25T07:00:00Z"}
	byUser := bySlumber
	byUser.Requester = "unknown (field manager kubectl-edit)"
	for name, row := range map[string]struct {
		observed int64
		want     []decision.Change
	}{
		"an observed generation: nothing is logged":      {2, nil},
		"a new generation: a changed schedule is logged": {1, []decision.Change{{What: "Schedule changed", Request: byUser}}},
		"a new Slumber: a changed schedule is logged":    {0, []decision.Change{{What: "Schedule changed", Request: byUser}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &torporv1alpha1.Slumber{
				ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "nights", Generation: 2, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl-edit", Time: &written}}},
				Spec:       torporv1alpha1.SlumberSpec{Reason: "no budget"},
				Status:     torporv1alpha1.SlumberStatus{ObservedGeneration: row.observed},
			}
			out := Controller{Clock: clock.RealClock{}}.report(s, nil, plan, nil)
			if diff := cmp.Diff(row.want, out.Changes); diff != "" {
				t.Errorf("changes (-want +found):\n%s", diff)
			}
			if diff := cmp.Diff(bySlumber, out.Request); diff != "" {
				t.Errorf("request (-want +found):\n%s", diff)
			}
		})
	}
}

// TestStopsOfMembersAreLogged captures the log of a stop that a Slumber writes to a cluster.
func TestStopsOfMembersAreLogged(t *testing.T) {
	t.Parallel()
	var lines []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	at := metav1.NewTime(time.Date(2026, 11, 24, 20, 0, 0, 0, time.UTC))
	held := torporv1alpha1.ScheduledStop{Slumber: "nights", Stops: []torporv1alpha1.StopRecord{{Since: at, By: "Slumber nights", Reason: "no budget", Requested: true}}}
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "fleet"}}
	var clusters kinds.Kind
	for _, k := range kinds.ListBuiltIn() {
		if k.GVK() == hivev1.ClusterDeploymentKind() {
			clusters = k
		}
	}
	memberWrite{memberObject: memberObject{cd, clusters}, stops: held}.logChanges(ctx)
	memberWrite{memberObject: memberObject{cd, clusters}, stops: held, before: held}.logChanges(ctx)
	want := []string{`"level"=0 "msg"="Stop requested" "memberKind"="ClusterDeployment" "memberNamespace"="dev" "member"="fleet" "requester"="Slumber nights" "reason"="no budget"`}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("log (-want +found):\n%s", diff)
	}
}
