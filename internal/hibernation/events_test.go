// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

func TestTransitionEvents(t *testing.T) {
	const on, off = actuator.Running, actuator.Stopped
	refused := ObservationError{actuator.WrongState, "Refused"}
	runs := Decide(observedCluster("", nil, on, apiWithNodes()))
	sleeps := Decide(observedCluster(wantHibernating, openRecord(), off))
	stops := Decide(observedCluster(wantHibernating, openRecord(), on))
	late := Decide(observedCluster(wantHibernating, &hivev1.HibernationRecord{SleepStartedAt: secondsAgo(time.Hour)}, on))
	stopFails := stops.Failed(refused)
	resumes := Decide(observedCluster("", resumingRecord(time.Minute), off))
	startFails := resumes.Failed(refused)
	silent := Decide(observedCluster("", nil, on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "No answer" }))
	approves := Decide(observedCluster("", resumedRecord(time.Minute), on, apiWithNodes(), withRequests("csr-0")))
	unsupported := Decide(observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Incompatible = "Too old" }))
	throttled := Decide(observedCluster("", nil, on, func(o *Observed) { o.ObservationError = throttledError() }))
	anonymous := stops
	anonymous.Record = &hivev1.HibernationRecord{}

	stopping := Event{Reason: hivev1.StoppingHibernationReason, Note: "The machines are being stopped; asked for by somebody"}
	resuming := Event{Reason: hivev1.ResumingHibernationReason, Note: "The cluster is being resumed"}
	asleep := Event{Reason: hivev1.HibernatingHibernationReason, Note: "Every machine is stopped"}
	running := Event{Reason: hivev1.RunningHibernationReason, Note: "The cluster runs"}
	failed := func(reason string) Event { return Event{Warning: true, Reason: reason, Note: "Refused"} }
	for name, row := range map[string]struct {
		before []metav1.Condition
		plan   Plan
		want   []Event
	}{
		"a cluster that is first seen running is no news":      {nil, runs, nil},
		"one that is first seen asleep is":                     {nil, sleeps, []Event{asleep}},
		"the beginning of a sleep names who asked":             {savedConditions(runs), stops, []Event{stopping}},
		"where that is known":                                  {savedConditions(runs), anonymous, []Event{{Reason: stopping.Reason, Note: "The machines are being stopped"}}},
		"the end of a sleep does not":                          {savedConditions(resumes), sleeps, []Event{asleep}},
		"the same again is no news":                            {savedConditions(stops), stops, nil},
		"machines that are late are no event":                  {savedConditions(stops), late, nil},
		"the beginning of a resume is news":                    {savedConditions(sleeps), resumes, []Event{resuming}},
		"its end is news":                                      {savedConditions(resumes), runs, []Event{running}},
		"a refused stop is a warning":                          {savedConditions(stops), stopFails, []Event{failed(hivev1.FailedToStopReason)}},
		"once":                                                 {savedConditions(stopFails), stopFails, nil},
		"and its success no event":                             {savedConditions(stopFails), stops, nil},
		"a refused start in the first pass is two events":      {savedConditions(sleeps), startFails, []Event{resuming, failed(hivev1.FailedToStartMachinesReason)}},
		"also where nothing was told before":                   {nil, startFails, []Event{resuming, failed(hivev1.FailedToStartMachinesReason)}},
		"a refused approval is a warning":                      {savedConditions(runs), approves.Failed(refused), []Event{failed(hivev1.FailedToApproveReason)}},
		"an approval is told by the shell, which knows whose":  {savedConditions(runs), approves, nil},
		"a silent API server is a warning":                     {savedConditions(runs), silent, []Event{{true, hivev1.APIUnreachableReason, "The API server does not answer: No answer"}}},
		"its answer is no event":                               {savedConditions(silent), runs, nil},
		"a cluster that cannot sleep is a warning":             {savedConditions(runs), unsupported, []Event{{true, hivev1.UnsupportedHibernationReason, "Too old"}}},
		"what cannot be observed is one warning":               {savedConditions(runs), throttled, []Event{{true, hivev1.CloudThrottledReason, "Slow down"}}},
		"and its end is news":                                  {savedConditions(throttled), runs, []Event{running}},
		"another status under the same reason is news as well": {[]metav1.Condition{{Type: hivev1.ClusterHibernatingCondition, Reason: hivev1.RunningHibernationReason, Status: metav1.ConditionUnknown}}, runs, []Event{running}},
		"conditions of others do not count":                    {[]metav1.Condition{{Type: "Other", Reason: hivev1.StoppingHibernationReason, Status: metav1.ConditionTrue}}, stops, []Event{stopping}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, TransitionEvents(row.before, row.plan)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// savedConditions are what the shell saves of a plan.
func savedConditions(p Plan) []metav1.Condition {
	var list []metav1.Condition
	for kind, c := range map[string]Condition{
		hivev1.ClusterHibernatingCondition: p.Hibernating,
		hivev1.ClusterReadyCondition:       p.Ready,
		hivev1.ClusterUnreachableCondition: p.Unreachable,
	} {
		list = append(list, metav1.Condition{Type: kind, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	return list
}
