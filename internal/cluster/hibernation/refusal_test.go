// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// TestRequiredHibernationPossible hibernates clusters that require the condition HibernationPossible.
func TestRequiredHibernationPossible(t *testing.T) {
	const obstacle = "ClusterUpgrading: Expected no upgrade in progress"
	required := func(o *Observed) { o.Options.RequiresPossible, o.IsSurveyed, o.Obstacles = true, true, obstacle }
	unsurveyed := func(o *Observed) { o.Options.RequiresPossible = true }
	const refused = "hibernation refused"
	for name, row := range map[string]struct {
		in   Observed
		want expectedPlan
	}{
		"hibernation with a blocking finding is refused": {
			observedCluster(wantHibernating, nil, actuator.Running, required, apiWithNodes(readyNode("n0"))),
			expectedPlan{refused, NoAction{}, hivev1.RefusedHibernationReason, hivev1.RunningHibernationReason, userRetryInterval},
		},
		"hibernation of an unreachable cluster is refused because of the last survey's blocking finding": {
			observedCluster(wantHibernating, nil, actuator.Running, required, func(o *Observed) { o.API, o.APIMessage = Unreachable, "x" }),
			expectedPlan{refused, NoAction{}, hivev1.RefusedHibernationReason, hivev1.APIUnreachableReason, userRetryInterval},
		},
		"hibernation with a blocking finding is refused while machines start": {
			observedCluster(wantHibernating, nil, actuator.Starting, required),
			expectedPlan{refused, NoAction{}, hivev1.RefusedHibernationReason, hivev1.RefusedHibernationReason, userRetryInterval},
		},
		"cluster without a survey is surveyed first": {
			observedCluster(wantHibernating, nil, actuator.Running, unsurveyed, apiWithNodes(readyNode("n0"))),
			expectedPlan{refused, NoAction{}, hivev1.RefusedHibernationReason, hivev1.RunningHibernationReason, firstSyncInterval},
		},
		"unreachable cluster without a survey hibernates": {
			observedCluster(wantHibernating, nil, actuator.Running, unsurveyed, func(o *Observed) { o.API = Unreachable }),
			expectedPlan{"record nodes", NoAction{}, hivev1.StoppingHibernationReason, hivev1.StoppingMachinesReason, immediately},
		},
		"cluster without a blocking finding hibernates": {
			observedCluster(wantHibernating, nil, actuator.Running, required, apiWithNodes(readyNode("n0")), func(o *Observed) { o.Obstacles = "" }),
			expectedPlan{"record nodes", NoAction{}, hivev1.StoppingHibernationReason, hivev1.StoppingMachinesReason, immediately},
		},
		"blocking finding without the requirement is ignored": {
			observedCluster(wantHibernating, nil, actuator.Running, required, apiWithNodes(readyNode("n0")), func(o *Observed) { o.Options.RequiresPossible = false }),
			expectedPlan{"record nodes", NoAction{}, hivev1.StoppingHibernationReason, hivev1.StoppingMachinesReason, immediately},
		},
		"hibernation that has begun continues": {
			observedCluster(wantHibernating, openRecord(), actuator.Running, required),
			expectedPlan{"stop machines", StopMachines{IDs: []string{"i-0", "i-1"}}, hivev1.StoppingHibernationReason, hivev1.StoppingMachinesReason, machineWaitInterval},
		},
		"hibernation that cancels a resume is not refused": {
			observedCluster(wantHibernating, resumingRecord(time.Minute), actuator.Running, required, apiWithNodes(staleNode("n0"))),
			expectedPlan{"record nodes", NoAction{}, hivev1.StoppingHibernationReason, hivev1.StoppingMachinesReason, immediately},
		},
		"second hibernation with a blocking finding is refused": {
			observedCluster(wantHibernating, resumedRecord(time.Hour), actuator.Running, required, apiWithNodes(readyNode("n0"))),
			expectedPlan{refused, NoAction{}, hivev1.RefusedHibernationReason, hivev1.RunningHibernationReason, userRetryInterval},
		},
		"cluster whose machines are all stopped counts as hibernating": {
			observedCluster(wantHibernating, nil, actuator.Stopped, required),
			expectedPlan{"hibernating", NoAction{}, hivev1.HibernatingHibernationReason, hivev1.HibernatingHibernationReason, closeLookWindow},
		},
		"cluster that should run keeps running": {
			observedCluster("", nil, actuator.Running, required, apiWithNodes(readyNode("n0"))),
			expectedPlan{"running", NoAction{}, hivev1.RunningHibernationReason, hivev1.RunningHibernationReason, driftInterval},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			isRefused := p.Hibernating.Reason == hivev1.RefusedHibernationReason
			if isRefused && row.in.Obstacles != "" && !strings.Contains(p.Hibernating.Message, obstacle) {
				t.Errorf("expected a message with the finding, found %q", p.Hibernating.Message)
			}
			if isRefused && (p.Hibernating.Status != metav1.ConditionFalse || p.Record != row.in.Record) {
				t.Errorf("expected Hibernating False and the record as it was, found %+v and %+v", p.Hibernating, p.Record)
			}
			expectPlan(t, row.want, row.in)
		})
	}
}
