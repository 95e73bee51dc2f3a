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

func TestEventsAreNews(t *testing.T) {
	const on, off = actuator.Running, actuator.Stopped
	refused := Trouble{actuator.WrongState, "Refused"}
	runs := Decide(with("", nil, on, answering()))
	sleeps := Decide(with(sleeping, open(), off))
	stops := Decide(with(sleeping, open(), on))
	late := Decide(with(sleeping, &hivev1.HibernationRecord{SleepStartedAt: ago(time.Hour)}, on))
	stopFails := stops.Failed(refused)
	resumes := Decide(with("", wakingSince(time.Minute), off))
	startFails := resumes.Failed(refused)
	silent := Decide(with("", nil, on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "No answer" }))
	approves := Decide(with("", finished(time.Minute), on, answering(), asking("csr-0")))
	unsupported := Decide(with(sleeping, nil, on, func(o *Observed) { o.Incompatible = "Too old" }))
	throttled := Decide(with("", nil, on, func(o *Observed) { o.Trouble = trouble() }))
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
		"the beginning of a sleep names who asked":             {conditions(runs), stops, []Event{stopping}},
		"where that is known":                                  {conditions(runs), anonymous, []Event{{Reason: stopping.Reason, Note: "The machines are being stopped"}}},
		"the end of a sleep does not":                          {conditions(resumes), sleeps, []Event{asleep}},
		"the same again is no news":                            {conditions(stops), stops, nil},
		"machines that are late are no event":                  {conditions(stops), late, nil},
		"the beginning of a resume is news":                    {conditions(sleeps), resumes, []Event{resuming}},
		"its end is news":                                      {conditions(resumes), runs, []Event{running}},
		"a refused stop is a warning":                          {conditions(stops), stopFails, []Event{failed(hivev1.FailedToStopReason)}},
		"once":                                                 {conditions(stopFails), stopFails, nil},
		"and its success no event":                             {conditions(stopFails), stops, nil},
		"a refused start in the first pass is two events":      {conditions(sleeps), startFails, []Event{resuming, failed(hivev1.FailedToStartMachinesReason)}},
		"also where nothing was told before":                   {nil, startFails, []Event{resuming, failed(hivev1.FailedToStartMachinesReason)}},
		"a refused approval is a warning":                      {conditions(runs), approves.Failed(refused), []Event{failed(hivev1.FailedToApproveReason)}},
		"an approval is told by the shell, which knows whose":  {conditions(runs), approves, nil},
		"a silent API server is a warning":                     {conditions(runs), silent, []Event{{true, hivev1.APIUnreachableReason, "The API server does not answer: No answer"}}},
		"its answer is no event":                               {conditions(silent), runs, nil},
		"a cluster that cannot sleep is a warning":             {conditions(runs), unsupported, []Event{{true, hivev1.UnsupportedHibernationReason, "Too old"}}},
		"what cannot be observed is one warning":               {conditions(runs), throttled, []Event{{true, hivev1.CloudThrottledReason, "Slow down"}}},
		"and its end is news":                                  {conditions(throttled), runs, []Event{running}},
		"another status under the same reason is news as well": {[]metav1.Condition{{Type: hivev1.ClusterHibernatingCondition, Reason: hivev1.RunningHibernationReason, Status: metav1.ConditionUnknown}}, runs, []Event{running}},
		"conditions of others do not count":                    {[]metav1.Condition{{Type: "Other", Reason: hivev1.StoppingHibernationReason, Status: metav1.ConditionTrue}}, stops, []Event{stopping}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, Events(row.before, row.plan)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// conditions are what the shell saves of a plan.
func conditions(p Plan) []metav1.Condition {
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
