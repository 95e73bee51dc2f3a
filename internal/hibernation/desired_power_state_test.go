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

func TestDesiredPowerState(t *testing.T) {
	const unset, running, hibernating = hivev1.PowerState(""), hivev1.PowerStateRunning, hivev1.PowerStateHibernating
	now := modelTime()
	ago := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-d))) }
	timer := func(limit, since time.Duration) RunTimer { return RunTimer{Limit: limit, Since: now.Add(-since)} }
	asleep := func(before *hivev1.PowerState) *hivev1.HibernationRecord {
		return &hivev1.HibernationRecord{SleepStartedAt: *ago(time.Hour), PowerStateBefore: before}
	}
	resumed := func(d time.Duration) *hivev1.HibernationRecord {
		return &hivev1.HibernationRecord{SleepStartedAt: *ago(9 * time.Hour), ResumeStartedAt: ago(d + time.Minute), ResumedAt: ago(d)}
	}
	askedAt := func(d time.Duration) RunTimer {
		return RunTimer{Limit: 8 * time.Hour, Since: now.Add(-d), ResumeRequestedAt: now.Add(-d)}
	}
	for name, row := range map[string]struct {
		spec   hivev1.PowerState
		timer  RunTimer
		record *hivev1.HibernationRecord
		want   hivev1.PowerState
	}{
		"without a limit the spec counts":                             {running, timer(0, time.Hour), nil, running},
		"a spec that says Hibernating counts whatever the time":       {hibernating, timer(8*time.Hour, time.Minute), nil, hibernating},
		"a cluster runs until its time is over":                       {running, timer(8*time.Hour, 8*time.Hour-time.Second), nil, running},
		"a cluster hibernates when its time is over":                  {running, timer(8*time.Hour, 8*time.Hour), nil, hibernating},
		"an empty spec hibernates too":                                {unset, timer(8*time.Hour, 9*time.Hour), nil, hibernating},
		"a resume begins the time anew":                               {running, timer(8*time.Hour, 90*time.Hour), resumed(time.Hour), running},
		"the time since a resume ends as well":                        {running, timer(8*time.Hour, 90*time.Hour), resumed(8 * time.Hour), hibernating},
		"a claim after a resume begins the time anew":                 {running, timer(8*time.Hour, time.Hour), resumed(20 * time.Hour), running},
		"a resume that is not over is not cut short":                  {running, timer(time.Minute, 90*time.Hour), &hivev1.HibernationRecord{ResumeStartedAt: ago(time.Hour)}, running},
		"who sleeps by the timer sleeps on":                           {running, timer(8*time.Hour, 9*time.Hour), asleep(new(running)), hibernating},
		"a longer limit wakes nobody":                                 {running, timer(80*time.Hour, 9*time.Hour), asleep(new(running)), hibernating},
		"no limit any more wakes":                                     {running, timer(0, 9*time.Hour), asleep(new(running)), running},
		"a spec that says Running since then wakes":                   {running, timer(8*time.Hour, 9*time.Hour), asleep(new(unset)), running},
		"who was asleep by the spec is woken by it":                   {running, timer(8*time.Hour, 90*time.Hour), asleep(nil), running},
		"a request from before the sleep wakes nobody":                {running, askedAt(2 * time.Hour), asleep(new(running)), hibernating},
		"a request since then wakes":                                  {running, askedAt(time.Minute), asleep(new(running)), running},
		"a request in the second in which the sleep began wakes, too": {running, askedAt(time.Hour), asleep(new(running)), running},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DesiredPowerState(row.spec, row.timer, row.record, now); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}

// timedOutCluster is a running cluster whose time is over.
func timedOutCluster(record *hivev1.HibernationRecord) Observed {
	return observedCluster(wantHibernating, record, actuator.Running, func(o *Observed) {
		o.SpecPowerState, o.Timer = hivev1.PowerStateRunning, RunTimer{Limit: time.Hour, Since: o.Now.Add(-2 * time.Hour)}
	})
}

func TestTimerIsTold(t *testing.T) {
	t.Run("a running cluster says when it hibernates and is looked at then", func(t *testing.T) {
		o := observedCluster(hivev1.PowerStateRunning, nil, actuator.Running, func(o *Observed) {
			o.API, o.Timer = Reachable, RunTimer{Limit: time.Hour, Since: o.Now.Add(-59 * time.Minute)}
		})
		p := Decide(o)
		if want := o.Now.Add(time.Minute).UTC().Format(time.RFC3339); !strings.Contains(p.Ready.Message, want) || p.RequeueAfter != time.Minute {
			t.Errorf("expected the time %s and a look after a minute, found %q and %s", want, p.Ready.Message, p.RequeueAfter)
		}
	})
	t.Run("the record says that nobody else asked", func(t *testing.T) {
		p := Decide(timedOutCluster(nil))
		if r := p.Record; r == nil || r.RequestedBy != requestedByTimer || r.PowerStateBefore == nil || *r.PowerStateBefore != hivev1.PowerStateRunning {
			t.Errorf("found the record %+v of %q", p.Record, p.Rule)
		}
	})
	t.Run("a cluster that sleeps by it says how to resume it", func(t *testing.T) {
		o := timedOutCluster(&hivev1.HibernationRecord{SleepStartedAt: secondsAgo(time.Minute), PowerStateBefore: new(hivev1.PowerStateRunning)})
		for i := range o.Machines {
			o.Machines[i].State = actuator.Stopped
		}
		if p := Decide(o); p.Rule != "asleep" || !strings.Contains(p.Hibernating.Message, hivev1.ResumeRequestedAtAnnotation) {
			t.Errorf("found %q: %s", p.Rule, p.Hibernating.Message)
		}
	})
	t.Run("an API server that stumbles when the time is over is waited for", func(t *testing.T) {
		o := timedOutCluster(nil)
		o.API, o.Nodes, o.Timer.Since = Unreachable, nil, o.Now.Add(-time.Hour-time.Second)
		if p := Decide(o); p.Rule != "nodes not read yet" {
			t.Errorf("found %q", p.Rule)
		}
	})
	t.Run("who asks for a hibernation that only the timer wanted is noted", func(t *testing.T) {
		o := timedOutCluster(&hivev1.HibernationRecord{SleepStartedAt: secondsAgo(time.Minute), RequestedBy: requestedByTimer, PowerStateBefore: new(hivev1.PowerStateRunning)})
		o.SpecPowerState, o.RequestedBy = hivev1.PowerStateHibernating, "alice"
		if r := Decide(o).Record; r.PowerStateBefore != nil || r.RequestedBy != "alice" || o.Record.PowerStateBefore == nil {
			t.Errorf("found %+v", r)
		}
	})
}
