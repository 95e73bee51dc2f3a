// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

func TestTransitionEvents(t *testing.T) {
	const on, off = actuator.Running, actuator.Stopped
	runs := Decide(observedCluster("", nil, on, apiWithNodes()))
	sleeps := Decide(observedCluster(wantHibernating, openRecord(), off))
	stops := Decide(observedCluster(wantHibernating, openRecord(), on))
	late := Decide(observedCluster(wantHibernating, &hivev1.HibernationRecord{SleepStartedAt: secondsAgo(lateAfter + time.Second)}, on))
	stalled := Decide(observedCluster(wantHibernating, &hivev1.HibernationRecord{SleepStartedAt: secondsAgo(time.Hour)}, on))
	degraded := Decide(observedCluster("", nil, on, secondMachine(off), apiWithNodes()))
	refused := func(o *Observed) {
		o.Refusal = &OrderRefusal{ObservationError{actuator.WrongState, "Refused"}, []string{"i-0", "i-1"}}
	}
	stopFails := Decide(observedCluster(wantHibernating, openRecord(), on, refused))
	resumes := Decide(observedCluster("", resumingRecord(time.Minute), off))
	startFails := Decide(observedCluster("", resumingRecord(time.Minute), off, refused))
	silent := Decide(observedCluster("", nil, on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "No answer" }))
	approves := Decide(observedCluster("", resumedRecord(time.Minute), on, apiWithNodes(), withRequests("csr-0")))
	approvalFails := Decide(observedCluster("", resumedRecord(time.Minute), on, apiWithNodes(), func(o *Observed) { o.ApprovalError = "Refused" }))
	unsupported := Decide(observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Incompatible = "Too old" }))
	throttled := Decide(observedCluster("", nil, on, func(o *Observed) { o.ObservationError = throttledError() }))
	anonymous := stops
	anonymous.Record = &hivev1.HibernationRecord{}

	event := func(reason, note string) decision.Event {
		return decision.Event{Reason: reason, Action: powerAction, Note: note}
	}
	warning := func(reason, note string) decision.Event {
		return decision.Event{Warning: true, Reason: reason, Action: powerAction, Note: note}
	}
	stopping := event(hivev1.StoppingHibernationReason, "The machines are being stopped; asked for by somebody")
	resuming := event(hivev1.ResumingHibernationReason, "The cluster is being resumed")
	asleep := event(hivev1.HibernatingHibernationReason, "Every machine is stopped")
	running := event(hivev1.RunningHibernationReason, "The cluster runs")
	failed := func(reason string) decision.Event { return warning(reason, "Refused") }
	for name, row := range map[string]struct {
		before []metav1.Condition
		plan   Plan
		want   []decision.Event
	}{
		"running cluster without earlier conditions emits no event":                           {nil, runs, nil},
		"hibernating cluster without earlier conditions emits an event":                       {nil, sleeps, []decision.Event{asleep}},
		"start of a hibernation is reported with the requester":                               {savedConditions(runs), stops, []decision.Event{stopping}},
		"start of a hibernation without a recorded requester is reported without a requester": {savedConditions(runs), anonymous, []decision.Event{event(stopping.Reason, "The machines are being stopped")}},
		"end of a hibernation is reported without the requester":                              {savedConditions(resumes), sleeps, []decision.Event{asleep}},
		"unchanged conditions emit no event":                                                  {savedConditions(stops), stops, nil},
		"machines that stop late emit no event":                                               {savedConditions(stops), late, nil},
		"stalled hibernation emits a warning":                                                 {savedConditions(stops), stalled, []decision.Event{warning(hivev1.ClusterStalledCondition, "Waiting for i-0, worker (i-1) to stop")}},
		"running cluster with a stopped machine emits a warning":                              {savedConditions(runs), degraded, []decision.Event{warning(hivev1.ClusterDegradedCondition, degraded.Degraded.Message)}},
		"machine that stays stopped emits no second warning":                                  {savedConditions(degraded), degraded, nil},
		"start of a resume emits an event":                                                    {savedConditions(sleeps), resumes, []decision.Event{resuming}},
		"end of a resume emits an event":                                                      {savedConditions(resumes), runs, []decision.Event{running}},
		"refused stop emits a warning":                                                        {savedConditions(stops), stopFails, []decision.Event{failed(hivev1.FailedToStopReason)}},
		"stop that stays refused emits no second event":                                       {savedConditions(stopFails), stopFails, nil},
		"stop that succeeds after a refusal emits no event":                                   {savedConditions(stopFails), stops, nil},
		"refused start in the first pass of a resume emits two events":                        {savedConditions(sleeps), startFails, []decision.Event{resuming, failed(hivev1.FailedToStartMachinesReason)}},
		"refused start without earlier conditions emits two events":                           {nil, startFails, []decision.Event{resuming, failed(hivev1.FailedToStartMachinesReason)}},
		"refused approval of a certificate request emits a warning":                           {savedConditions(runs), approvalFails, []decision.Event{failed(hivev1.FailedToApproveReason)}},
		"approval of a certificate request emits no transition event":                         {savedConditions(runs), approves, nil},
		"unreachable API server emits a warning":                                              {savedConditions(runs), silent, []decision.Event{warning(hivev1.APIUnreachableReason, "The API server does not answer: No answer")}},
		"API server that responds again emits no event":                                       {savedConditions(silent), runs, nil},
		"cluster that cannot hibernate emits a warning":                                       {savedConditions(runs), unsupported, []decision.Event{warning(hivev1.UnsupportedHibernationReason, "Too old")}},
		"cluster that cannot be observed emits one warning":                                   {savedConditions(runs), throttled, []decision.Event{warning(hivev1.CloudThrottledReason, "Slow down")}},
		"cluster that can be observed again emits an event":                                   {savedConditions(throttled), runs, []decision.Event{running}},
		"condition with a changed status and an unchanged reason emits an event":              {[]metav1.Condition{{Type: hivev1.ClusterHibernatingCondition, Reason: hivev1.RunningHibernationReason, Status: metav1.ConditionUnknown}}, runs, []decision.Event{running}},
		"condition of another controller does not suppress an event":                          {[]metav1.Condition{{Type: "Other", Reason: hivev1.StoppingHibernationReason, Status: metav1.ConditionTrue}}, stops, []decision.Event{stopping}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, TransitionEvents(row.before, row.plan)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// savedConditions are the conditions that the controller saves for a plan.
func savedConditions(p Plan) []metav1.Condition {
	var list []metav1.Condition
	for kind, c := range map[string]decision.Condition{
		hivev1.ClusterHibernatingCondition: p.Hibernating,
		hivev1.ClusterReadyCondition:       p.Ready,
		hivev1.ClusterUnreachableCondition: p.Unreachable,
		hivev1.ClusterDegradedCondition:    p.Degraded,
		hivev1.ClusterStalledCondition:     p.Stalled,
	} {
		list = append(list, metav1.Condition{Type: kind, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	return list
}
