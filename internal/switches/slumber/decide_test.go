// SPDX-License-Identifier: Apache-2.0

package slumber_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// evening is three hours after the window of nights has begun; the window ends at seven.
func evening() time.Time { return time.Date(2026, 11, 24, 23, 0, 0, 0, time.UTC) }

// noon is outside every window.
func noon() time.Time { return time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC) }

// nights returns a Slumber with two waves that sleep from 20:00 to 7:00.
func nights() *torporv1alpha1.Slumber {
	s := &torporv1alpha1.Slumber{Spec: specOf("UTC", "0 20 * * *", "0 7 * * *")}
	s.Name, s.Generation, s.Status.ObservedGeneration = "nights", 1, 1
	for _, name := range []string{"apps", "databases"} {
		s.Spec.Waves = append(s.Spec.Waves, torporv1alpha1.SlumberWave{Name: name, Targets: []torporv1alpha1.SlumberTarget{{
			Kind: "ClusterDeployment", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"wave": name}},
		}}})
	}
	return s
}

// withWaves records in the status of a Slumber the intended state of each wave, and since when.
func withWaves(s *torporv1alpha1.Slumber, since time.Time, shouldSleep ...bool) *torporv1alpha1.Slumber {
	for i, wish := range shouldSleep {
		s.Status.Waves = append(s.Status.Waves, torporv1alpha1.SlumberWaveStatus{Name: s.Spec.Waves[i].Name, ShouldSleep: wish, Since: new(metav1.NewTime(since))})
	}
	return s
}

func awake(name string) slumber.Member {
	return slumber.Member{Name: name, State: kinds.State{IsStoppable: true, IsAwake: true}}
}

func asleep(name string) slumber.Member {
	return slumber.Member{Name: name, IsStopped: true, State: kinds.State{IsStoppable: true, IsAsleep: true}}
}

func falling(name string) slumber.Member {
	return slumber.Member{Name: name, IsStopped: true, State: kinds.State{IsStoppable: true, Message: "Stopping"}}
}

// verbs returns a word for each wave: k (keep), s (stop) or a (start) for each member, or - if no member changes.
func verbs(p slumber.Plan) string {
	var words []string
	for _, wishes := range p.Wishes {
		word := "-"
		if wishes != nil {
			word = ""
		}
		for _, wish := range wishes {
			word += map[slumber.MemberVerb]string{slumber.Keep: "k", slumber.Stop: "s", slumber.Start: "a"}[wish.Verb]
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestDecide has an observation in each row, and the expected plan: the state, which waves should sleep, the action
// on each member, the reason of Ready, and the events.
func TestDecide(t *testing.T) {
	skipped, resumed := asleep("a"), asleep("a")
	skipped.SkippedUntil = evening().Add(time.Hour)
	skippedAndAwake := awake("a")
	skippedAndAwake.SkippedUntil = skipped.SkippedUntil
	resumed.ResumedAt, resumed.ResumedBy = metav1.NewTime(evening()), "bob"
	others := asleep("a")
	others.IsStopped, others.IsStoppedWithoutSlumbers = false, true
	waking := asleep("a")
	waking.IsStopped = false
	expired := asleep("a")
	expired.IsExpired = true
	since := evening().Add(-time.Minute)
	type members = []slumber.Member
	for name, row := range map[string]struct {
		slumber *torporv1alpha1.Slumber
		now     time.Time
		waves   []members
		want    string
		reason  string
		events  string
	}{
		"outside the windows: no wave is stopped":                               {nights(), noon(), []members{{awake("a")}, {awake("b")}}, "Awake ff a a", "AsWished", ""},
		"a window begins: only the first wave should sleep":                     {nights(), evening(), []members{{awake("a")}, {awake("b")}}, "FallingAsleep tf - a", "InTransition", "SleepBegins"},
		"members of the first wave are stopped if the saved status requests it": {withWaves(nights(), since, true, false), evening(), []members{{awake("a")}, {awake("b")}}, "FallingAsleep tf s a", "InTransition", "SleepBegins"},
		"the first wave is not asleep yet: the second wave waits":               {withWaves(nights(), since, true, false), evening(), []members{{asleep("a"), falling("c")}, {awake("b")}}, "FallingAsleep tf ss a", "InTransition", "SleepBegins"},
		"the first wave is asleep: the second wave should sleep":                {withWaves(nights(), since, true, false), evening(), []members{{asleep("a")}, {awake("b")}}, "FallingAsleep tt s -", "InTransition", "SleepBegins"},
		"an empty first wave: the second wave does not wait":                    {nights(), evening(), []members{{}, {awake("b")}}, "FallingAsleep tt - -", "InTransition", "SleepBegins"},
		"every member is asleep: the Slumber is Asleep":                         {withWaves(nights(), since, true, true), evening(), []members{{asleep("a")}, {asleep("b")}}, "Asleep tt s s", "AsWished", "AllAsleep"},
		"the first wave exceeds its timeout: the second wave does not wait":     {withWaves(nights(), since.Add(-time.Hour), true, false), evening(), []members{{falling("a")}, {awake("b")}}, "FallingAsleep tt s -", "InTransition", "WaveTimedOut SleepBegins"},
		"a window ends: only the last wave should wake":                         {withWaves(nights(), since, true, true), noon(), []members{{asleep("a")}, {asleep("b")}}, "WakingUp tf k -", "InTransition", "WakeBegins"},
		"members of the last wave are started if the saved status requests it":  {withWaves(nights(), noon(), true, false), noon(), []members{{asleep("a")}, {asleep("b")}}, "WakingUp tf k a", "InTransition", "WakeBegins"},
		"the last wave is awake: the first wave should wake":                    {withWaves(nights(), noon(), true, false), noon(), []members{{asleep("a")}, {awake("b")}}, "WakingUp ff - a", "InTransition", "WakeBegins"},
		"a member that a user stopped does not delay a wave": {
			withWaves(nights(), noon(), false, false), noon(), []members{{others}, {awake("b")}}, "Awake ff a a", "AsWished", "",
		},
		"a member that a user skips is started":      {withWaves(nights(), since, true, true), evening(), []members{{skipped}, {asleep("b")}}, "Asleep tt a s", "AsWished", "AllAsleep"},
		"users skip all members: no event AllAsleep": {withWaves(nights(), since, true, true), evening(), []members{{skippedAndAwake}, {}}, "Asleep tt a -", "AsWished", ""},
		"a member that a user resumed is started":    {withWaves(nights(), since, true, true), evening(), []members{{resumed}, {asleep("b")}}, "Asleep tt a s", "AsWished", "AllAsleep"},
		"a window begins after one whose end no pass has seen: the second wave waits for the first again": {
			withWaves(nights(), evening().Add(-24*time.Hour), true, true), evening(), []members{{awake("a")}, {awake("b")}}, "FallingAsleep tt - k", "InTransition", "SleepBegins",
		},
		"a sleeping member whose stop has ended delays the next wave": {
			withWaves(nights(), since, true, false), evening(), []members{{waking}, {awake("b")}}, "FallingAsleep tf s a", "InTransition", "SleepBegins",
		},
		"a sleeping member whose stop has expired delays the next wave": {
			withWaves(nights(), since, true, false), evening(), []members{{expired}, {awake("b")}}, "FallingAsleep tf s a", "InTransition", "SleepBegins",
		},
		"a suspended Slumber: only the last wave should wake": {
			func() *torporv1alpha1.Slumber {
				s := withWaves(nights(), since, true, true)
				s.Spec.Suspend = true
				return s
			}(), evening(), []members{{asleep("a")}, {asleep("b")}}, "WakingUp tf k -", "InTransition", "WakeBegins",
		},
		"a window that a pass sees after the starting deadline is skipped": {
			func() *torporv1alpha1.Slumber {
				s := nights()
				s.Spec.StartingDeadlineSeconds = new(int64(3600))
				return s
			}(), evening(), []members{{awake("a")}, {awake("b")}}, "Awake ff a a", "AsWished", "WindowMissed",
		},
		"a new Slumber inside a window begins to sleep in spite of the starting deadline": {
			func() *torporv1alpha1.Slumber {
				s := nights()
				s.Spec.StartingDeadlineSeconds, s.Status.ObservedGeneration = new(int64(3600)), 0
				return s
			}(), evening(), []members{{awake("a")}, {awake("b")}}, "FallingAsleep tf - a", "InTransition", "SleepBegins",
		},
		"an invalid schedule: no member is stopped or started": {
			func() *torporv1alpha1.Slumber {
				s := withWaves(nights(), since, true, true)
				s.Spec.TimeZone, s.Status.State = "Europe/Atlantis", torporv1alpha1.SlumberAsleep
				return s
			}(), noon(), []members{{asleep("a")}, {asleep("b")}}, "Invalid tt ", "InvalidSchedule", "InvalidSchedule",
		},
		"a corrected schedule: the waves of the saved status continue": {
			func() *torporv1alpha1.Slumber {
				s := withWaves(nights(), since, true, true)
				s.Status.State = torporv1alpha1.SlumberInvalid
				return s
			}(), evening(), []members{{asleep("a")}, {asleep("b")}}, "Asleep tt s s", "AsWished", "AllAsleep",
		},
		"a corrected schedule outside its windows: no event": {
			func() *torporv1alpha1.Slumber {
				s := nights()
				s.Status.State = torporv1alpha1.SlumberInvalid
				return s
			}(), noon(), []members{{awake("a")}, {awake("b")}}, "Awake ff a a", "AsWished", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := slumber.Decide(slumber.Observed{Now: row.now, Slumber: row.slumber, Waves: row.waves})
			found := string(p.Status.State) + " "
			for _, wave := range p.Status.Waves {
				found += map[bool]string{true: "t", false: "f"}[wave.ShouldSleep]
			}
			found += " " + verbs(p)
			var events []string
			for _, e := range p.Events {
				events = append(events, e.Reason)
			}
			if diff := cmp.Diff([]string{row.want, row.reason, row.events}, []string{found, p.Ready.Reason, strings.Join(events, " ")}); diff != "" {
				t.Errorf("(-want +found):\n%s%+v", diff, p)
			}
		})
	}
}

// TestAManagerThatBeginsWaitsForKinds has a wave with a kind whose controller is not running, before and after
// KindsGrace has elapsed.
func TestAManagerThatBeginsWaitsForKinds(t *testing.T) {
	s := withWaves(nights(), evening().Add(-time.Second), true, false)
	s.Spec.Waves[0].Targets[0].Kind = "Deployment"
	o := slumber.Observed{Now: evening(), Slumber: s, Waves: [][]slumber.Member{{}, {awake("b")}}, MissingKinds: []string{"Deployment.apps"}, KindsAwaitedUntil: evening().Add(slumber.KindsGrace)}
	if p := slumber.Decide(o); p.Status.Waves[1].ShouldSleep || !strings.Contains(p.Ready.Message, "wave apps waits for the objects of Deployment.apps") || p.RequeueAfter > slumber.KindsGrace {
		t.Errorf("expected the next wave to wait, found %q: %+v", verbs(p), p.Ready)
	}
	o.Now = o.KindsAwaitedUntil
	if p := slumber.Decide(o); !p.Status.Waves[1].ShouldSleep || p.Stalled.Reason != torporv1alpha1.SlumberKindMissingReason {
		t.Errorf("expected the next wave to come, and the kind to be named, found %+v: %+v", p.Status.Waves, p.Stalled)
	}
}

// TestAWaveWaitsForAKindThatCannotBeListed has such a kind in the first wave. Objects of the kind may still be awake,
// so the next wave waits until the timeout.
func TestAWaveWaitsForAKindThatCannotBeListed(t *testing.T) {
	s := withWaves(nights(), evening().Add(-time.Second), true, false)
	s.Spec.Waves[0].Targets[0].Kind = "Deployment"
	o := slumber.Observed{Now: evening(), Slumber: s, Waves: [][]slumber.Member{{}, {awake("b")}}, UnreadableKinds: map[string]string{"Deployment.apps": "InternalError"}}
	p := slumber.Decide(o)
	if p.Status.Waves[1].ShouldSleep || p.RequeueAfter > time.Minute || !strings.Contains(p.Ready.Message, "waits for the objects of Deployment.apps (InternalError)") {
		t.Errorf("expected the next wave to wait, found %q in %s: %+v", verbs(p), p.RequeueAfter, p.Ready)
	}
	if p.Stalled.Reason != torporv1alpha1.SlumberKindUnreadableReason || !strings.Contains(p.Stalled.Message, "does not list Deployment.apps (InternalError)") {
		t.Errorf("expected the kind to be named, found %+v", p.Stalled)
	}
	o.Now, s.Spec.SpreadOver = evening().Add(time.Hour), &metav1.Duration{Duration: 10 * time.Minute}
	p = slumber.Decide(o)
	if !p.Status.Waves[0].IsTimedOut || !p.Status.Waves[1].ShouldSleep {
		t.Errorf("expected the next wave to come after the timeout, found %+v", p.Status.Waves)
	}
	if len(p.Events) == 0 || !strings.Contains(p.Events[0].Note, "was not complete after 40m0s") {
		t.Errorf("expected an event with the timeout and the spread of the wave, found %+v", p.Events)
	}
}

// TestUnstoppableMemberIsReportedWithItsReason has a cluster that keeps running because it cannot hibernate.
func TestUnstoppableMemberIsReportedWithItsReason(t *testing.T) {
	unable := awake("ClusterDeployment a")
	unable.IsStopped, unable.Message = true, "Unsupported: no version is known"
	s := withWaves(nights(), evening().Add(-time.Minute), true, false)
	plan := slumber.Decide(slumber.Observed{Now: evening(), Slumber: s, Waves: [][]slumber.Member{{unable}, {awake("b")}}})
	const want = "ClusterDeployment a (Unsupported: no version is known)"
	if got := plan.Status.Waves[0].WaitsFor; got != want || !strings.Contains(plan.Ready.Message, "wave apps waits for "+want) {
		t.Errorf("expected the wave to wait for %s, found %q: %s", want, got, plan.Ready.Message)
	}
}

// TestResumedMemberIsStoppedInTheNextWindow has a user resume a member in one window, whose end no pass has seen.
func TestResumedMemberIsStoppedInTheNextWindow(t *testing.T) {
	s := withWaves(nights(), evening().Add(-3*time.Hour), true, true)
	lastNight := metav1.NewTime(evening().Add(-26 * time.Hour))
	member := awake("a")
	member.ScheduledStops = []torporv1alpha1.ScheduledStop{{Slumber: "nights", Stops: []torporv1alpha1.StopRecord{{Since: lastNight, By: "Slumber nights", RequestVersion: "1", Requested: true}}}}
	member.IsStopped, member.ResumedAt, member.ResumedBy = true, metav1.NewTime(lastNight.Add(time.Hour)), "bob"
	p := slumber.Decide(slumber.Observed{Now: evening(), Slumber: s, Waves: [][]slumber.Member{{member}, {}}})
	next := p.NextStops(s, member, 0, p.Wishes[0][0], evening())
	if len(next.Stops) != 2 || !next.Stops[0].Since.After(member.ResumedAt.Time) || next.Stops[0].EndedAt != nil || next.Stops[1].StartedBy != "bob" || !next.Stops[1].EndedAt.Equal(&member.ResumedAt) {
		t.Errorf("expected a stop of this window after one that bob has ended, found %+v", next.Stops)
	}
}

// TestStopsAreRecorded follows one member through a window, and through another in which a user skips it.
func TestStopsAreRecorded(t *testing.T) {
	s := nights()
	s.Annotations = map[string]string{torporv1alpha1.RequestedByAnnotation: "alice"}
	s.Spec.Reason = "nobody works at night"
	withWaves(s, evening(), true, true)
	member := awake("a")
	asleepPlan := slumber.Decide(slumber.Observed{Now: evening(), Slumber: s, Waves: [][]slumber.Member{{member}, {}}})
	next := asleepPlan.NextStops(s, member, 0, slumber.MemberWish{Verb: slumber.Stop}, evening())
	end := time.Date(2026, 11, 25, 7, 0, 0, 0, time.UTC)
	if stop := next.Stops[0]; stop.By != "Slumber nights of alice" || stop.Reason != "nobody works at night" || !stop.Until.Time.Equal(end) || !stop.Requested {
		t.Errorf("found %+v", stop)
	}
	if !next.ExpiresAt.Time.Equal(end.Add(time.Hour)) {
		t.Errorf("expected it to expire after the timeouts of two waves, found %s", next.ExpiresAt)
	}
	member.ScheduledStops = []torporv1alpha1.ScheduledStop{next}
	later := asleepPlan.NextStops(s, member, 0, slumber.MemberWish{Verb: slumber.Stop}, evening().Add(time.Hour))
	if diff := cmp.Diff(next, later); diff != "" {
		t.Errorf("expected a later pass to change nothing: %s", diff)
	}
	if kept := asleepPlan.NextStops(s, member, 0, slumber.MemberWish{Verb: slumber.Keep}, end); len(kept.Stops) != 1 || kept.Stops[0].EndedAt != nil {
		t.Errorf("expected it to be kept, found %+v", kept)
	}
	started := asleepPlan.NextStops(s, member, 0, slumber.MemberWish{Verb: slumber.Start, StartedBy: "bob"}, end)
	if stop := started.Stops[0]; stop.StartedBy != "bob" || !stop.EndedAt.Time.Equal(end) || stop.Requested || started.ExpiresAt != nil {
		t.Errorf("found %+v", started)
	}
}

// TestInvalidSelectorsAreReported has a selector with an operator that lacks its values, which the schema accepts.
func TestInvalidSelectorsAreReported(t *testing.T) {
	s := withWaves(nights(), evening().Add(-3*time.Hour), true, true)
	s.Spec.Waves[1].Targets[0].Selector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}}}
	plan := slumber.Decide(slumber.Observed{Now: noon(), Slumber: s, Waves: make([][]slumber.Member, 2)})
	if plan.Wishes != nil || plan.Stalled.Reason != torporv1alpha1.SlumberInvalidReason || !strings.Contains(plan.Stalled.Message, "spec.waves[1].targets[0].selector: ") {
		t.Errorf("expected that nothing is stopped or started, and why, found %v and %+v", plan.Wishes, plan.Stalled)
	}
}

// TestStartingManagerReportsNoMissingKinds expects a newly started manager to report no kind as missing, unless the
// status already does.
func TestStartingManagerReportsNoMissingKinds(t *testing.T) {
	for was, want := range map[string]string{
		torporv1alpha1.SlumberAsExpectedReason: torporv1alpha1.SlumberAsExpectedReason, torporv1alpha1.SlumberKindMissingReason: torporv1alpha1.SlumberKindMissingReason,
	} {
		s := nights()
		s.Status.Conditions = []metav1.Condition{{Type: torporv1alpha1.SlumberStalledCondition, Reason: was}}
		o := slumber.Observed{Now: noon(), Slumber: s, Waves: make([][]slumber.Member, 2), MissingKinds: []string{"Deployment.apps"}, KindsAwaitedUntil: noon().Add(slumber.KindsGrace)}
		if p := slumber.Decide(o); p.Stalled.Reason != want {
			t.Errorf("it was %s: expected %s, found %+v", was, want, p.Stalled)
		}
		o.Now = o.KindsAwaitedUntil
		if p := slumber.Decide(o); p.Stalled.Reason != torporv1alpha1.SlumberKindMissingReason {
			t.Errorf("it was %s: expected it to be reported once the kinds are awaited no more, found %+v", was, p.Stalled)
		}
	}
}

// TestStopEventCountsSkippedMembers checks the note of the event AllAsleep.
func TestStopEventCountsSkippedMembers(t *testing.T) {
	skipped := awake("b")
	skipped.SkippedUntil = evening().Add(time.Hour)
	for want, members := range map[string][]slumber.Member{
		"All objects are asleep": {asleep("a")},
		"All objects are asleep, except members that users skipped or resumed: 1": {asleep("a"), skipped},
	} {
		p := slumber.Decide(slumber.Observed{Now: evening(), Slumber: withWaves(nights(), evening().Add(-time.Minute), true, true), Waves: [][]slumber.Member{members, {}}})
		if len(p.Events) != 1 || p.Events[0].Reason != slumber.EventAllAsleep || p.Events[0].Note != want {
			t.Errorf("expected one event with %q, found %+v", want, p.Events)
		}
	}
}
