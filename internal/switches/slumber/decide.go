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
	// defaultWaveTimeout applies if no timeout is set. It equals the default of the schema.
	defaultWaveTimeout = 30 * time.Minute
	// maxNames is the maximum number of members that a message lists.
	maxNames = 5
	// lookInterval is how often a Slumber is reconciled without an event. It is a fallback: every change that a
	// Slumber waits for also triggers a reconciliation.
	lookInterval = 10 * time.Minute
	// KindsGrace is how long a newly started manager waits for kinds whose controllers are about to start. Without
	// it, a wave with only such kinds would count as asleep, and the next wave would not wait for it.
	KindsGrace = time.Minute
	// unreadableInterval is the time after which kinds that could not be listed are listed again.
	unreadableInterval = 30 * time.Second
	// immediately is the shortest delay of another reconciliation; zero would request none.
	immediately = time.Millisecond
)

// MemberVerb is the action of the Slumber on a member.
type MemberVerb int

const (
	// Keep leaves the stop of the member unchanged.
	Keep MemberVerb = iota
	// Stop and Start begin and end a stop.
	Stop
	Start
)

// MemberWish is the intended action on a member. StartedBy is the user or annotation that causes a start, if the
// schedule does not.
type MemberWish struct {
	Verb      MemberVerb
	StartedBy string
}

// Plan is the result of a decision.
type Plan struct {
	// Status is the next status; its conditions are ignored.
	Status torporv1alpha1.SlumberStatus
	// Wishes are the intended actions on the members of each wave; nil for a wave whose members are not changed.
	Wishes [][]MemberWish
	// WindowEnd is the end of the current window; zero if there is no current window, or if it has no end.
	WindowEnd      time.Time
	Ready, Stalled decision.Condition
	isWaking       bool
	// windowSince is the beginning of the current window; zero if there is no current window, or if it has no
	// beginning.
	windowSince  time.Time
	Events       []decision.Event
	RequeueAfter time.Duration
}

// Decide returns the plan of a Slumber. With an invalid spec, no member is changed: sleeping members remain asleep
// until their stops expire.
func Decide(o Observed) Plan {
	schedule, err := ParseSchedule(o.Slumber.Spec)
	if err != nil {
		return keepAll(o, err)
	}
	if err := cmp.Or(o.InvalidReach, validateSelectors(o.Slumber)); err != nil {
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
	if p.Status.State != torporv1alpha1.SlumberInvalid {
		p.Status.State, p.Status.Since = torporv1alpha1.SlumberInvalid, new(metav1.NewTime(o.Now))
	}
	message := "Nothing is stopped or started: " + err.Error()
	p.Ready, p.Stalled = decision.False(torporv1alpha1.SlumberInvalidReason, message), decision.True(torporv1alpha1.SlumberInvalidReason, message)
	if c := meta.FindStatusCondition(o.Slumber.Status.Conditions, torporv1alpha1.SlumberStalledCondition); c == nil || c.Message != message {
		p.Events = []decision.Event{{Warning: true, Reason: EventInvalidSchedule, Action: "ReadSchedule", Note: message}}
	}
	return p
}

// checkMissedWindow checks whether a window was observed too late. A window that had already begun when the Slumber
// was created or changed is not missed.
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
			"Expected to observe the window of %s within %d s of its start (spec.startingDeadlineSeconds), found that the window began %s ago; the objects keep running until the next window",
			formatTime(phase.Since), *deadline, o.Now.Sub(phase.Since).Round(time.Second))})
	}
}

// advanceWaves begins to stop the next wave in order, or to start the next wave in reverse order. A wave waits for
// its predecessor, at most until the predecessor's timeout.
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
			// No reconciliation ran between the two windows. A resume in the earlier window does not count in the
			// current window, and members that slept may have woken.
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

// waveOf returns a wave as recorded in the status. A new wave is awake.
func waveOf(o Observed, name string) torporv1alpha1.SlumberWaveStatus {
	at := slices.IndexFunc(o.Slumber.Status.Waves, func(w torporv1alpha1.SlumberWaveStatus) bool { return w.Name == name })
	if at < 0 {
		return torporv1alpha1.SlumberWaveStatus{Name: name, IsSettled: true}
	}
	w := o.Slumber.Status.Waves[at]
	return torporv1alpha1.SlumberWaveStatus{Name: name, ShouldSleep: w.ShouldSleep, Since: w.Since, WaitsSince: w.WaitsSince, IsSettled: w.IsSettled, IsTimedOut: w.IsTimedOut}
}

// observeWave counts the members of a wave, lists those that the wave waits for, and determines whether it is settled
// or has timed out.
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
			waiting = append(waiting, describeMember(m, o.Now, turnOf(o.Slumber, *wave, m)))
		}
		p.requeueAt(o.Now, m.SkippedUntil)
	}
	if wave.IsSettled && !wave.ShouldSleep {
		return // A settled wave that is awake waits for no member.
	}
	wave.WaitsFor = JoinNames(waiting)
	limit := SpreadOf(o.Slumber) + waveTimeoutOf(o.Slumber)
	if wave.IsSettled = wave.IsSettled || wave.WaitsFor == ""; wave.IsSettled {
		wave.IsTimedOut = false
		return
	}
	if p.isLeftFromEarlierWindow(*wave) {
		wave.WaitsFor, wave.IsTimedOut = "", false
		return
	}
	if end := waitsSince(*wave).Add(limit); !wave.IsTimedOut && !o.Now.Before(end) {
		wave.IsTimedOut = true
		p.Events = append(p.Events, decision.Event{Warning: true, Reason: EventWaveTimedOut, Action: "Wait", Note: fmt.Sprintf(
			"Wave %s was not complete after %s, because the wave waits for %s; the next wave no longer waits for this wave", wave.Name, limit, wave.WaitsFor)})
	} else {
		p.requeueAt(o.Now, end)
	}
}

// isLeftFromEarlierWindow reports whether ShouldSleep of a wave dates from an earlier window, because no
// reconciliation ran after the end of that window. The wave has then not been stopped in this window yet.
func (p *Plan) isLeftFromEarlierWindow(wave torporv1alpha1.SlumberWaveStatus) bool {
	return !p.isWaking && wave.ShouldSleep && wave.Since != nil && wave.Since.Time.Before(p.windowSince)
}

func waveTimeoutOf(s *torporv1alpha1.Slumber) time.Duration {
	if timeout := s.Spec.WaveTimeout; timeout != nil {
		return timeout.Duration
	}
	return defaultWaveTimeout
}

// describeMember returns the name of a member that its wave waits for, and the reason.
func describeMember(m Member, now, turn time.Time) string {
	if now.Before(turn) {
		return m.Name + " (due at " + formatTime(turn) + ")"
	}
	if m.Message == "" {
		return m.Name
	}
	return m.Name + " (" + m.Message + ")"
}

// JoinNames sorts names and joins them. For more than maxNames names, it shows the first names and the number of the
// remaining names.
func JoinNames(names []string) string {
	slices.Sort(names)
	if len(names) > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}

// wish sets the intended action on each member.
func (p *Plan) wish(o Observed) {
	p.Wishes = make([][]MemberWish, len(o.Waves))
	for i, members := range o.Waves {
		wave := p.Status.Waves[i]
		if !isSaved(wave, o.Slumber.Status.Waves) {
			p.RequeueAfter = immediately
			continue
		}
		for _, m := range members {
			turn := turnOf(o.Slumber, wave, m)
			p.Wishes[i] = append(p.Wishes[i], p.wishOf(m, wave, o.Now, turn))
			p.requeueAt(o.Now, turn)
		}
	}
}

// isSaved reports whether the saved status already records the intended state of a wave. Only then are its members
// stopped or started: otherwise, after a crash, the next manager would begin the stop again with a later time.
func isSaved(wave torporv1alpha1.SlumberWaveStatus, saved []torporv1alpha1.SlumberWaveStatus) bool {
	i := slices.IndexFunc(saved, func(w torporv1alpha1.SlumberWaveStatus) bool { return w.Name == wave.Name })
	return i < 0 && wave.Since == nil || i >= 0 && saved[i].ShouldSleep == wave.ShouldSleep && saved[i].Since.Equal(wave.Since)
}

// wishOf returns the intended action on one member. turn is the time at which the member is due in a wave that is
// spread over time. A skip or a resume by a user takes effect even before this time.
func (p *Plan) wishOf(m Member, wave torporv1alpha1.SlumberWaveStatus, now, turn time.Time) MemberWish {
	by := cmp.Or(m.SkippedBy, torporv1alpha1.SkipUntilAnnotation)
	isDue, isStopped := !now.Before(turn), m.IsStopped && !m.IsExpired
	switch {
	case !wave.ShouldSleep && (isDue || !isStopped):
		return MemberWish{Verb: Start}
	case m.ResumedAt.After(wave.Since.Time):
		by = m.ResumedBy
		fallthrough
	case now.Before(m.SkippedUntil):
		return MemberWish{Verb: Start, StartedBy: by}
	case !wave.ShouldSleep, !isDue && !isStopped:
		return MemberWish{Verb: Keep} // The member is not due yet.
	case p.isWaking:
		return MemberWish{Verb: Keep} // The member stays stopped until its wave is started; its stop expires late enough for that.
	case p.isLeftFromEarlierWindow(wave):
		return MemberWish{Verb: Keep} // The wave has not been stopped in this window yet.
	default:
		return MemberWish{Verb: Stop}
	}
}

// conclude sets the state, the conditions and the events of the whole Slumber.
func (p *Plan) conclude(o Observed, before torporv1alpha1.SlumberStatus, shouldSleep bool) {
	var waiting, late []string
	isDone := true
	for _, wave := range p.Status.Waves {
		if wave.ShouldSleep != shouldSleep || p.isLeftFromEarlierWindow(wave) {
			waiting = append(waiting, fmt.Sprintf("wave %s is not due yet", wave.Name))
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
		p.Events = append(p.Events, stateEvent(before.State, p.Status)...)
	}
	next := p.describeNext(o)
	p.Ready = decision.True(torporv1alpha1.SlumberAsWishedReason, fmt.Sprintf("%s: %d of %d objects are asleep; %s", p.Status.State, p.Status.Asleep, p.Status.Members, next))
	if len(waiting) > 0 {
		p.Ready = decision.False(torporv1alpha1.SlumberInTransitionReason, fmt.Sprintf("%s: %s; %s", p.Status.State, strings.Join(waiting, "; "), next))
	}
	p.Stalled = decision.False(torporv1alpha1.SlumberAsExpectedReason, "No action is needed")
	if o.lacksKinds() {
		p.Stalled = decision.True(torporv1alpha1.SlumberKindMissingReason, "Expected every selected kind to be served and stoppable by Torpor, found kinds that are not: "+
			strings.Join(o.MissingKinds, ", ")+"; install the kind, the feature or StopAdapter that handles it, and its RBAC rules")
	}
	if len(o.UnreadableKinds) > 0 {
		var unreadable []string
		for name, why := range o.UnreadableKinds {
			unreadable = append(unreadable, name+" ("+why+")")
		}
		p.Stalled = decision.True(torporv1alpha1.SlumberKindUnreadableReason, "Expected the API server to list the kinds of the members, found that it does not list "+
			JoinNames(unreadable)+"; these objects are not changed until the API server lists them: check the APIService or the conversion webhook of the kinds")
	}
	if len(late) > 0 {
		p.Stalled = decision.True(torporv1alpha1.SlumberWaveTimedOutReason, strings.Join(late, "; ")+"; check these objects")
	}
}

// lacksKinds reports whether kinds are missing after the time in which they can still be announced. Before this time,
// a newly started manager repeats the report of the previous manager.
func (o Observed) lacksKinds() bool {
	if len(o.MissingKinds) == 0 || !o.Now.Before(o.KindsAwaitedUntil) {
		return len(o.MissingKinds) > 0
	}
	before := meta.FindStatusCondition(o.Slumber.Status.Conditions, torporv1alpha1.SlumberStalledCondition)
	return before != nil && before.Reason == torporv1alpha1.SlumberKindMissingReason
}

// NoteRefusal reports that members could not be stopped or started.
func (p *Plan) NoteRefusal(message string) {
	const reason = torporv1alpha1.SlumberWriteFailedReason
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

// stateEvent returns the event for a new state. It returns none for a new or corrected Slumber that is awake, and
// none if all members are skipped.
func stateEvent(before torporv1alpha1.SlumberState, after torporv1alpha1.SlumberStatus) []decision.Event {
	event := decision.Event{Action: "Sleep"}
	switch after.State {
	case torporv1alpha1.SlumberFallingAsleep:
		event.Reason, event.Note = EventSleepBegins, "A window has begun: the waves are stopped one after another"
	case torporv1alpha1.SlumberAsleep:
		if event.Reason, event.Note = EventAllAsleep, describeAsleep(after); event.Note == "" {
			return nil
		}
	case torporv1alpha1.SlumberWakingUp:
		event.Reason, event.Action, event.Note = EventWakeBegins, "Wake", "The waves are started one after another, the last wave first"
	case torporv1alpha1.SlumberAwake:
		if before == "" || before == torporv1alpha1.SlumberInvalid {
			return nil
		}
		event.Reason, event.Action, event.Note = EventAllAwake, "Wake", "Every object runs again, except those that are also stopped for another reason"
	case torporv1alpha1.SlumberInvalid:
		return nil // The condition Ready has the reason.
	}
	return []decision.Event{event}
}

// describeAsleep returns the note of the event AllAsleep, or "" if no member is asleep because all are skipped.
func describeAsleep(after torporv1alpha1.SlumberStatus) string {
	var skipped int32
	for _, wave := range after.Waves {
		skipped += wave.Skipped
	}
	switch {
	case skipped == 0:
		return "All objects are asleep"
	case after.Asleep == 0:
		return ""
	default:
		return fmt.Sprintf("All objects are asleep, except members that users skipped or resumed: %d", skipped)
	}
}

func (p *Plan) describeNext(o Observed) string {
	switch next := p.Status.NextTransitions; {
	case o.Slumber.Spec.Suspend:
		return "suspended: the schedule has no effect"
	case len(next) == 0:
		return "no transition is scheduled"
	default:
		text := fmt.Sprintf("%s from %s", next[0].To, formatTime(next[0].At.Time))
		if over := SpreadOf(o.Slumber); over > 0 {
			text += fmt.Sprintf(", each wave spread over %s", over)
		}
		return text
	}
}

// requeueAt moves the next reconciliation forward to the given time if this time is earlier.
func (p *Plan) requeueAt(now, moment time.Time) {
	if left := moment.Sub(now); left > 0 {
		p.RequeueAfter = min(p.RequeueAfter, left)
	}
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
