// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

const (
	// defaultWaveTimeout is that of the schema, where none is set.
	defaultWaveTimeout = 30 * time.Minute
	// maxNames is how many members a message names.
	maxNames = 5
	// lookInterval is how often a Slumber is reconciled without an event: whatever it waits for triggers a pass, too.
	lookInterval = 10 * time.Minute
	// KindsGrace is for how long a manager that has begun waits for kinds whose controllers are about to begin. Without that, a wave of them alone
	// would count as asleep, and the next one would not wait for it.
	KindsGrace = time.Minute
	// unreadableInterval is when kinds are listed again that could not be.
	unreadableInterval = 30 * time.Second
	// immediately asks for another pass at once; zero would ask for none.
	immediately = time.Millisecond
)

// MemberVerb is what is to become of a member.
type MemberVerb int

const (
	// Keep leaves its stop as it is.
	Keep MemberVerb = iota
	// Stop and Start begin and end a stop.
	Stop
	Start
)

// MemberWish is what is to become of a member. StartedBy is who or what starts it if that is not the Slumber.
type MemberWish struct {
	Verb      MemberVerb
	StartedBy string
}

// Plan is what follows from what was observed.
type Plan struct {
	// Status is the next status, without conditions.
	Status torporv1alpha1.SlumberStatus
	// Wishes are what is to become of each member of each wave; nil of a wave that is left as it is.
	Wishes [][]MemberWish
	// WindowEnd is when the window ends that holds; zero if none does or it has no end.
	WindowEnd      time.Time
	Ready, Stalled decision.Condition
	isWaking       bool
	// windowSince is when the window began that holds; zero if none does, or it always has.
	windowSince  time.Time
	Events       []decision.Event
	RequeueAfter time.Duration
}

// Decide returns what a Slumber does. A spec that makes no sense changes nothing: what slept sleeps on until its stop expires.
func Decide(o Observed) Plan {
	schedule, err := ParseSchedule(o.Slumber.Spec)
	if err != nil {
		return keepAll(o, err)
	}
	if err := validateSelectors(o.Slumber); err != nil {
		return keepAll(o, err)
	}
	before := o.Slumber.Status
	transitions := schedule.NextTransitions(o.Now)
	phase := schedule.phaseGivenNext(o.Now, transitions)
	p := Plan{Status: torporv1alpha1.SlumberStatus{ObservedGeneration: o.Slumber.Generation, NextTransitions: transitions}, RequeueAfter: lookInterval}
	p.requeueAt(o.Now, phase.Until)
	if len(o.MissingKinds) > 0 {
		p.requeueAt(o.Now, o.KindsAwaitedUntil)
	}
	if len(o.UnreadableKinds) > 0 {
		p.requeueAt(o.Now, o.Now.Add(unreadableInterval))
	}
	p.checkMissedWindow(o, phase)
	shouldSleep := phase.IsAsleep && !p.Status.IsWindowMissed && !o.Slumber.Spec.Suspend
	if shouldSleep {
		p.WindowEnd, p.windowSince = phase.Until, phase.Since
	}
	p.isWaking = !shouldSleep
	p.advanceWaves(o, phase, shouldSleep)
	p.wish(o)
	p.conclude(o, before, shouldSleep)
	return p
}

func keepAll(o Observed, err error) Plan {
	p := Plan{Status: *o.Slumber.Status.DeepCopy()}
	p.Status.ObservedGeneration, p.Status.NextTransitions = o.Slumber.Generation, nil
	message := "Nothing is stopped or started: " + err.Error()
	p.Ready, p.Stalled = decision.False(torporv1alpha1.SlumberInvalidReason, message), decision.True(torporv1alpha1.SlumberInvalidReason, message)
	if c := meta.FindStatusCondition(o.Slumber.Status.Conditions, torporv1alpha1.SlumberStalledCondition); c == nil || c.Message != message {
		p.Events = []decision.Event{{Warning: true, Reason: EventInvalidSchedule, Action: "ReadSchedule", Note: message}}
	}
	return p
}

// checkMissedWindow finds out whether a window was noticed too late. One that held already when the Slumber was made or changed is not missed.
func (p *Plan) checkMissedWindow(o Observed, phase SchedulePhase) {
	before := o.Slumber.Status
	if !phase.IsAsleep {
		return
	}
	p.Status.WindowStart = new(metav1.NewTime(phase.Since))
	isKnown := before.WindowStart != nil && before.WindowStart.Unix() == phase.Since.Unix()
	switch deadline := o.Slumber.Spec.StartingDeadlineSeconds; {
	case before.ObservedGeneration != o.Slumber.Generation || deadline == nil:
	case isKnown:
		p.Status.IsWindowMissed = before.IsWindowMissed
	case o.Now.Sub(phase.Since) > time.Duration(*deadline)*time.Second:
		p.Status.IsWindowMissed = true
		p.Events = append(p.Events, decision.Event{Warning: true, Reason: EventWindowMissed, Action: "Sleep", Note: fmt.Sprintf(
			"Expected to notice the window of %s within %d s, as spec.startingDeadlineSeconds says, found it %s later; everything stays awake until the next one",
			formatTime(phase.Since), *deadline, o.Now.Sub(phase.Since).Round(time.Second))})
	}
}

// advanceWaves stops the first wave that may be, or starts the last. A wave waits for the one before it, and no longer than the timeout.
func (p *Plan) advanceWaves(o Observed, phase SchedulePhase, shouldSleep bool) {
	for _, wave := range o.Slumber.Spec.Waves {
		p.Status.Waves = append(p.Status.Waves, waveOf(o, wave.Name))
	}
	order := make([]int, len(p.Status.Waves))
	for i := range order {
		if order[i] = i; !shouldSleep {
			order[i] = len(order) - 1 - i
		}
	}
	for _, i := range order {
		wave := &p.Status.Waves[i]
		if wave.ShouldSleep != shouldSleep {
			wave.ShouldSleep, wave.Since, wave.WaitsSince = shouldSleep, new(metav1.NewTime(o.Now)), nil
			wave.IsTimedOut, wave.IsSettled = false, false
		} else if shouldSleep && wave.Since != nil && wave.Since.Time.Before(phase.Since) {
			// Nobody saw the time between the windows: who has resumed something in the last one, has not in this one, and what slept may have woken.
			wave.Since, wave.WaitsSince = new(metav1.NewTime(phase.Since)), new(metav1.NewTime(o.Now))
			wave.IsTimedOut, wave.IsSettled = false, false
		}
		p.observeWave(o, i)
		if !wave.IsSettled && !wave.IsTimedOut {
			break
		}
	}
	for i := range p.Status.Waves {
		p.observeWave(o, i)
		p.Status.Members += p.Status.Waves[i].Members
		p.Status.Asleep += p.Status.Waves[i].Asleep
	}
}

// waveOf is a wave as the status has it. One that is new is awake.
func waveOf(o Observed, name string) torporv1alpha1.SlumberWaveStatus {
	at := slices.IndexFunc(o.Slumber.Status.Waves, func(w torporv1alpha1.SlumberWaveStatus) bool { return w.Name == name })
	if at < 0 {
		return torporv1alpha1.SlumberWaveStatus{Name: name, IsSettled: true}
	}
	w := o.Slumber.Status.Waves[at]
	return torporv1alpha1.SlumberWaveStatus{Name: name, ShouldSleep: w.ShouldSleep, Since: w.Since, WaitsSince: w.WaitsSince, IsSettled: w.IsSettled, IsTimedOut: w.IsTimedOut}
}

// observeWave counts the members of a wave, and names those that it waits for.
func (p *Plan) observeWave(o Observed, i int) {
	wave := &p.Status.Waves[i]
	wave.Members, wave.Asleep, wave.Skipped, wave.WaitsFor = 0, 0, 0, ""
	waiting := o.listUnknown(i)
	for _, m := range o.Waves[i] {
		wave.Members++
		if m.IsAsleep {
			wave.Asleep++
		}
		isLeftAlone := wave.ShouldSleep && m.isLeftAlone(o.Now, wave.Since.Time)
		if isLeftAlone {
			wave.Skipped++
		} else if !m.isAsWished(wave.ShouldSleep) {
			waiting = append(waiting, describeMember(m))
		}
		p.requeueAt(o.Now, m.SkippedUntil)
	}
	if wave.IsSettled && !wave.ShouldSleep {
		return // What becomes of what is awake is not for a Slumber to tell.
	}
	wave.WaitsFor = JoinNames(waiting)
	timeout := waveTimeoutOf(o.Slumber)
	if wave.IsSettled = wave.IsSettled || wave.WaitsFor == ""; wave.IsSettled {
		wave.IsTimedOut = false
		return
	}
	if p.isLeftFromEarlierWindow(*wave) {
		wave.WaitsFor, wave.IsTimedOut = "", false
		return
	}
	waitsSince := wave.Since
	if wave.WaitsSince != nil {
		waitsSince = wave.WaitsSince
	}
	if end := waitsSince.Add(timeout); !wave.IsTimedOut && !o.Now.Before(end) {
		wave.IsTimedOut = true
		p.Events = append(p.Events, decision.Event{Warning: true, Reason: EventWaveTimedOut, Action: "Wait", Note: fmt.Sprintf(
			"The wave %s was not as it should be after %s: %s; the next one goes on without it", wave.Name, timeout, wave.WaitsFor)})
	} else {
		p.requeueAt(o.Now, end)
	}
}

// isLeftFromEarlierWindow reports whether a wave still has its ShouldSleep from an earlier window, whose end no pass has seen, and was not stopped
// in this one yet.
func (p *Plan) isLeftFromEarlierWindow(wave torporv1alpha1.SlumberWaveStatus) bool {
	return !p.isWaking && wave.ShouldSleep && wave.Since != nil && wave.Since.Time.Before(p.windowSince)
}

func waveTimeoutOf(s *torporv1alpha1.Slumber) time.Duration {
	if timeout := s.Spec.WaveTimeout; timeout != nil {
		return timeout.Duration
	}
	return defaultWaveTimeout
}

func describeMember(m Member) string {
	if m.Message == "" {
		return m.Name
	}
	return m.Name + " (" + m.Message + ")"
}

// JoinNames sorts names and joins them; of many it shows the first and says how many more there are.
func JoinNames(names []string) string {
	slices.Sort(names)
	if len(names) > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}

// wish says of each member whether it is to be stopped.
func (p *Plan) wish(o Observed) {
	p.Wishes = make([][]MemberWish, len(o.Waves))
	for i, members := range o.Waves {
		wave := p.Status.Waves[i]
		if !isSaved(wave, o.Slumber.Status.Waves) {
			p.RequeueAfter = immediately
			continue
		}
		for _, m := range members {
			p.Wishes[i] = append(p.Wishes[i], p.wishOf(m, wave, o.Now))
		}
	}
}

// isSaved reports whether the status says already what is wanted of a wave. Nothing is stopped or started before that: a manager that
// dies in between would begin the stop anew, and later.
func isSaved(wave torporv1alpha1.SlumberWaveStatus, saved []torporv1alpha1.SlumberWaveStatus) bool {
	i := slices.IndexFunc(saved, func(w torporv1alpha1.SlumberWaveStatus) bool { return w.Name == wave.Name })
	return i < 0 && wave.Since == nil || i >= 0 && saved[i].ShouldSleep == wave.ShouldSleep && saved[i].Since.Equal(wave.Since)
}

func (p *Plan) wishOf(m Member, wave torporv1alpha1.SlumberWaveStatus, now time.Time) MemberWish {
	by := cmp.Or(m.SkippedBy, torporv1alpha1.SkipUntilAnnotation)
	switch {
	case !wave.ShouldSleep:
		return MemberWish{Verb: Start}
	case m.ResumedAt.After(wave.Since.Time):
		by = m.ResumedBy
		fallthrough
	case now.Before(m.SkippedUntil):
		return MemberWish{Verb: Start, StartedBy: by}
	case p.isWaking:
		return MemberWish{Verb: Keep} // It sleeps on until it is its turn, as it was told when it was stopped.
	case p.isLeftFromEarlierWindow(wave):
		return MemberWish{Verb: Keep} // Its last stop may have expired.
	default:
		return MemberWish{Verb: Stop}
	}
}

// conclude says what the Slumber does as a whole.
func (p *Plan) conclude(o Observed, before torporv1alpha1.SlumberStatus, shouldSleep bool) {
	var waiting, late []string
	isDone := true
	for _, wave := range p.Status.Waves {
		if wave.ShouldSleep != shouldSleep || p.isLeftFromEarlierWindow(wave) {
			waiting = append(waiting, fmt.Sprintf("wave %s comes later", wave.Name))
		} else if wave.WaitsFor != "" {
			waiting = append(waiting, fmt.Sprintf("wave %s waits for %s", wave.Name, wave.WaitsFor))
		}
		isDone = isDone && wave.ShouldSleep == shouldSleep && wave.IsSettled
		if wave.IsTimedOut {
			late = append(late, fmt.Sprintf("wave %s has waited too long for %s", wave.Name, wave.WaitsFor))
		}
	}
	p.Status.State = stateOf(shouldSleep, isDone)
	p.Status.Since = before.Since
	if before.State != p.Status.State || before.Since == nil {
		p.Status.Since = new(metav1.NewTime(o.Now))
		p.Events = append(p.Events, stateEvent(before.State, p.Status.State)...)
	}
	next := p.describeNext(o)
	p.Ready = decision.True(torporv1alpha1.SlumberAsWishedReason, fmt.Sprintf("%s: %d of %d are asleep; %s", p.Status.State, p.Status.Asleep, p.Status.Members, next))
	if len(waiting) > 0 {
		p.Ready = decision.False(torporv1alpha1.SlumberInTransitionReason, fmt.Sprintf("%s: %s; %s", p.Status.State, strings.Join(waiting, "; "), next))
	}
	p.Stalled = decision.False(torporv1alpha1.SlumberAsExpectedReason, "Nothing needs anybody")
	if o.lacksKinds() {
		p.Stalled = decision.True(torporv1alpha1.SlumberKindMissingReason, "Expected kinds that are served and that Torpor may stop, found none of "+
			strings.Join(o.MissingKinds, ", ")+"; install the kind, its feature or its StopAdapter, and the rights")
	}
	if len(o.UnreadableKinds) > 0 {
		var unreadable []string
		for name, why := range o.UnreadableKinds {
			unreadable = append(unreadable, name+" ("+why+")")
		}
		p.Stalled = decision.True(torporv1alpha1.SlumberKindUnreadableReason, "Expected the API server to list the kinds of the members, found that it does not list "+
			JoinNames(unreadable)+"; their objects stay as they are until it does: see what serves or converts them")
	}
	if len(late) > 0 {
		p.Stalled = decision.True(torporv1alpha1.SlumberWaveTimedOutReason, strings.Join(late, "; ")+"; see what keeps it")
	}
}

// lacksKinds reports whether kinds are missing that are not about to come: a manager that has just begun says no more of that than the last one did.
func (o Observed) lacksKinds() bool {
	if len(o.MissingKinds) == 0 || !o.Now.Before(o.KindsAwaitedUntil) {
		return len(o.MissingKinds) > 0
	}
	before := meta.FindStatusCondition(o.Slumber.Status.Conditions, torporv1alpha1.SlumberStalledCondition)
	return before != nil && before.Reason == torporv1alpha1.SlumberKindMissingReason
}

// NoteRefusal says that members could not be stopped or started. A class names a member whose schema drops what was written.
func (p *Plan) NoteRefusal(class, message string) {
	reason := torporv1alpha1.SlumberWriteFailedReason
	if class == torporv1alpha1.SlumberSchemaLacksFieldReason {
		reason = class
		message = "Expected status.scheduledStops in the schema of every member, found that it is dropped from " + message + "; install Torpor's CustomResourceDefinitions"
	}
	p.Ready, p.Stalled = decision.False(reason, message), decision.True(reason, message)
}

func stateOf(shouldSleep, isDone bool) torporv1alpha1.SlumberState {
	switch {
	case shouldSleep && isDone:
		return torporv1alpha1.SlumberAsleep
	case shouldSleep:
		return torporv1alpha1.SlumberFallingAsleep
	case isDone:
		return torporv1alpha1.SlumberAwake
	default:
		return torporv1alpha1.SlumberWakingUp
	}
}

// stateEvent tells of a new state. A Slumber that is new and keeps nothing asleep has nothing to tell.
func stateEvent(before, after torporv1alpha1.SlumberState) []decision.Event {
	event := decision.Event{Action: "Sleep"}
	switch after {
	case torporv1alpha1.SlumberFallingAsleep:
		event.Reason, event.Note = EventSleepBegins, "A window has begun: the waves are stopped one after another"
	case torporv1alpha1.SlumberAsleep:
		event.Reason, event.Note = EventAllAsleep, "Everything is asleep"
	case torporv1alpha1.SlumberWakingUp:
		event.Reason, event.Action, event.Note = EventWakeBegins, "Wake", "The waves are started one after another, the last one first"
	case torporv1alpha1.SlumberAwake:
		if before == "" {
			return nil
		}
		event.Reason, event.Action, event.Note = EventAllAwake, "Wake", "Everything is awake that nobody else has stopped"
	}
	return []decision.Event{event}
}

func (p *Plan) describeNext(o Observed) string {
	switch next := p.Status.NextTransitions; {
	case o.Slumber.Spec.Suspend:
		return "suspended: nothing is stopped"
	case len(next) == 0:
		return "nothing follows"
	default:
		return fmt.Sprintf("%s from %s", next[0].To, formatTime(next[0].At.Time))
	}
}

// requeueAt shortens the time until the next look to a moment.
func (p *Plan) requeueAt(now, moment time.Time) {
	if left := moment.Sub(now); left > 0 {
		p.RequeueAfter = min(p.RequeueAfter, left)
	}
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
