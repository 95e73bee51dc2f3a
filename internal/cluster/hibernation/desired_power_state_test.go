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
		"cluster without spec.hibernateAfter has no run time limit":                {running, timer(0, time.Hour), nil, running},
		"spec.powerState Hibernating takes effect before the run time ends":        {hibernating, timer(8*time.Hour, time.Minute), nil, hibernating},
		"cluster runs until its run time ends":                                     {running, timer(8*time.Hour, 8*time.Hour-time.Second), nil, running},
		"cluster hibernates when its run time ends":                                {running, timer(8*time.Hour, 8*time.Hour), nil, hibernating},
		"cluster with an empty spec.powerState hibernates when its run time ends":  {unset, timer(8*time.Hour, 9*time.Hour), nil, hibernating},
		"resume restarts the run time":                                             {running, timer(8*time.Hour, 90*time.Hour), resumed(time.Hour), running},
		"cluster hibernates again when the run time after a resume ends":           {running, timer(8*time.Hour, 90*time.Hour), resumed(8 * time.Hour), hibernating},
		"claim after a resume restarts the run time":                               {running, timer(8*time.Hour, time.Hour), resumed(20 * time.Hour), running},
		"run time that ends during a resume does not interrupt the resume":         {running, timer(time.Minute, 90*time.Hour), &hivev1.HibernationRecord{ResumeStartedAt: ago(time.Hour)}, running},
		"cluster hibernated by the timer keeps hibernating":                        {running, timer(8*time.Hour, 9*time.Hour), asleep(new(running)), hibernating},
		"increase of spec.hibernateAfter does not resume the cluster":              {running, timer(80*time.Hour, 9*time.Hour), asleep(new(running)), hibernating},
		"removal of spec.hibernateAfter resumes the cluster":                       {running, timer(0, 9*time.Hour), asleep(new(running)), running},
		"later change of spec.powerState to Running resumes the cluster":           {running, timer(8*time.Hour, 9*time.Hour), asleep(new(unset)), running},
		"cluster hibernated by spec.powerState is resumed by spec.powerState":      {running, timer(8*time.Hour, 90*time.Hour), asleep(nil), running},
		"resume request from before the hibernation does not resume the cluster":   {running, askedAt(2 * time.Hour), asleep(new(running)), hibernating},
		"resume request from after the hibernation resumes the cluster":            {running, askedAt(time.Minute), asleep(new(running)), running},
		"resume request in the same second as the hibernation resumes the cluster": {running, askedAt(time.Hour), asleep(new(running)), running},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DesiredPowerState(row.spec, row.timer, row.record, now); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}

// timedOutCluster is a running cluster whose run time has elapsed.
func timedOutCluster(record *hivev1.HibernationRecord) Observed {
	return observedCluster(wantHibernating, record, actuator.Running, func(o *Observed) {
		o.SpecPowerState, o.Timer = hivev1.PowerStateRunning, RunTimer{Limit: time.Hour, Since: o.Now.Add(-2 * time.Hour)}
	})
}

func TestTimerIsReported(t *testing.T) {
	t.Run("running cluster reports the end of its run time and requeues at that time", func(t *testing.T) {
		o := observedCluster(hivev1.PowerStateRunning, nil, actuator.Running, func(o *Observed) {
			o.API, o.Timer = Reachable, RunTimer{Limit: time.Hour, Since: o.Now.Add(-59 * time.Minute)}
		})
		p := Decide(o)
		if want := o.Now.Add(time.Minute).UTC().Format(time.RFC3339); !strings.Contains(p.Ready.Message, want) || p.RequeueAfter != time.Minute {
			t.Errorf("expected the time %s and a pass after a minute, found %q and %s", want, p.Ready.Message, p.RequeueAfter)
		}
	})
	t.Run("record names the timer as the requester", func(t *testing.T) {
		p := Decide(timedOutCluster(nil))
		if r := p.Record; r == nil || r.RequestedBy != requestedByTimer || r.PowerStateBefore == nil || *r.PowerStateBefore != hivev1.PowerStateRunning {
			t.Errorf("found the record %+v of %q", p.Record, p.Rule)
		}
	})
	t.Run("cluster hibernated by the timer reports how to resume it", func(t *testing.T) {
		o := timedOutCluster(&hivev1.HibernationRecord{SleepStartedAt: secondsAgo(time.Minute), PowerStateBefore: new(hivev1.PowerStateRunning)})
		for i := range o.Machines {
			o.Machines[i].State = actuator.Stopped
		}
		if p := Decide(o); p.Rule != "hibernating" || !strings.Contains(p.Hibernating.Message, hivev1.ResumeRequestedAtAnnotation) {
			t.Errorf("found %q: %s", p.Rule, p.Hibernating.Message)
		}
	})
	t.Run("unreachable API server is awaited when the run time ends", func(t *testing.T) {
		o := timedOutCluster(nil)
		o.API, o.Nodes, o.Timer.Since = Unreachable, nil, o.Now.Add(-time.Hour-time.Second)
		if p := Decide(o); p.Rule != "waiting to record nodes" {
			t.Errorf("found %q", p.Rule)
		}
	})
	t.Run("later requester of a hibernation by the timer is recorded", func(t *testing.T) {
		o := timedOutCluster(&hivev1.HibernationRecord{SleepStartedAt: secondsAgo(time.Minute), RequestedBy: requestedByTimer, PowerStateBefore: new(hivev1.PowerStateRunning)})
		o.SpecPowerState, o.RequestedBy = hivev1.PowerStateHibernating, "alice"
		if r := Decide(o).Record; r.PowerStateBefore != nil || r.RequestedBy != "alice" || o.Record.PowerStateBefore == nil {
			t.Errorf("found %+v", r)
		}
	})
}
