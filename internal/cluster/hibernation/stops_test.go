// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// stoppedSince is the record of a stop that began an hour ago, with the given end.
func stoppedSince(until string) stoprecord.Records {
	asked := stoprecord.Request{
		IsStopped: true, By: "alice", Version: "1", At: modelTime().Add(-time.Hour), Reason: "a change of disks", Until: until, UntilWrittenAt: modelTime().Add(-time.Hour),
	}
	return stoprecord.NextRecords(nil, asked, modelTime())
}

func TestStopEnds(t *testing.T) {
	for name, row := range map[string]struct {
		spec  hivev1.PowerState
		stops stoprecord.Records
		want  hivev1.PowerState
	}{
		"stop without an end is in effect":                      {hivev1.PowerStateHibernating, stoppedSince(""), hivev1.PowerStateHibernating},
		"stop before its end is in effect":                      {hivev1.PowerStateHibernating, stoppedSince("61m"), hivev1.PowerStateHibernating},
		"stop at its end has expired":                           {hivev1.PowerStateHibernating, stoppedSince("60m"), hivev1.PowerStateRunning},
		"stop without a record is in effect":                    {hivev1.PowerStateHibernating, nil, hivev1.PowerStateHibernating},
		"expired stop leaves spec.powerState Running unchanged": {hivev1.PowerStateRunning, stoppedSince("60m"), hivev1.PowerStateRunning},
	} {
		t.Run(name, func(t *testing.T) {
			if found := EffectivePowerState(row.spec, row.stops, nil, modelTime()); found != row.want {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
}

func TestSlumbersOverrideThePowerStateOfTheSpec(t *testing.T) {
	scheduled := &torporv1alpha1.ScheduledStop{Slumber: "nights", Stops: stoppedSince("")}
	for _, spec := range []hivev1.PowerState{"", hivev1.PowerStateRunning, hivev1.PowerStateHibernating} {
		if found := EffectivePowerState(spec, stoppedSince("60m"), scheduled, modelTime()); found != hivev1.PowerStateHibernating {
			t.Errorf("%q: found %q", spec, found)
		}
	}
	note := Observed{Scheduled: scheduled}.stopNote()
	if note != "; asked for by alice: a change of disks" {
		t.Errorf("expected the requester and the reason, found %q", note)
	}
}

func TestStopIsReported(t *testing.T) {
	t.Run("hibernating cluster reports the requester, reason and end of its stop, and requeues at the end", func(t *testing.T) {
		o := observedCluster(wantHibernating, &hivev1.HibernationRecord{SleepStartedAt: secondsAgo(time.Hour)}, actuator.Stopped, func(o *Observed) {
			o.Stops = stoppedSince("61m")
		})
		p := Decide(o)
		if want := "asked for by alice: a change of disks; until " + o.Now.Add(time.Minute).UTC().Format(time.RFC3339); !strings.Contains(p.Ready.Message, want) || p.RequeueAfter > time.Minute {
			t.Errorf("expected %q and a pass within a minute, found %q and %s", want, p.Ready.Message, p.RequeueAfter)
		}
	})
	t.Run("cluster with an expired stop reports that the stop has ended", func(t *testing.T) {
		o := observedCluster(hivev1.PowerStateRunning, nil, actuator.Running, func(o *Observed) { o.API, o.Stops = Reachable, stoppedSince("60m") })
		if p := Decide(o); !strings.Contains(p.Ready.Message, "torpor.dev/until ended that stop at ") {
			t.Errorf("found %q: %s", p.Rule, p.Ready.Message)
		}
	})
}
