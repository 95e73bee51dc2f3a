// SPDX-License-Identifier: Apache-2.0

// Package condition is what conditions are made of: three-valued reports, how several of them become one, and the loops
// that call a function, watch an object, or wait until a report has held for a while.
package condition

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// State is whether a condition holds.
type State int8

// The three states of a condition. Unknown keeps whatever runs.
const (
	Unknown State = iota
	False
	True
)

// String returns "Unknown", "False" or "True".
func (s State) String() string {
	switch s {
	case False:
		return "False"
	case True:
		return "True"
	case Unknown:
		return "Unknown"
	}
	return fmt.Sprintf("State(%d)", int8(s))
}

// MarshalText writes the state as String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is one report of a condition.
type Status struct {
	State State `json:"state"`
	// Reason is a CamelCase word, Message a sentence for people.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Identity names what the condition found. When it changes while the state is True, the group restarts.
	Identity string `json:"identity,omitempty"`
}

func stateFromBool(holds bool) State {
	if holds {
		return True
	}
	return False
}

// Child is a condition together with the sources it observes.
type Child struct {
	Name string
	// Observe reports every change until ctx ends; it returns nil when nothing can change any more.
	Observe func(ctx context.Context, report func(Status)) error
}

// DefaultBackoff grows from 1 s to 5 min.
func DefaultBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 1 << 30, Cap: 5 * time.Minute}
}

// ObserveWithBackoff observes the child until ctx ends, again with a back-off after an error or a panic, which it reports as
// Unknown. The back-off begins anew after an observation that lasted longer than its Cap.
func (c Child) ObserveWithBackoff(ctx context.Context, backoff wait.Backoff, report func(Status)) {
	pause := backoff
	for ctx.Err() == nil {
		began := time.Now()
		err := c.observeOnce(ctx, report)
		if err == nil || ctx.Err() != nil {
			return
		}
		report(Status{State: Unknown, Reason: "ObserveFailed", Message: err.Error()})
		if time.Since(began) > backoff.Cap {
			pause = backoff
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.Step()):
		}
	}
}

func (c Child) observeOnce(ctx context.Context, report func(Status)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("condition %s panicked: %v", c.Name, p)
		}
	}()
	if err := c.Observe(ctx, report); err != nil {
		return fmt.Errorf("observe condition %s: %w", c.Name, err)
	}
	return nil
}

// ObserveCombined observes all children at once and reports the judgement after each of their reports. It returns after the
// last child has: when ctx ended, or when nothing can change any more.
func ObserveCombined(ctx context.Context, children []Child, judge JudgeFunc, report func(Status)) {
	var mu sync.Mutex
	inputs := make([]ChildInput, len(children))
	for i, c := range children {
		inputs[i] = ChildInput{Name: c.Name, Now: Status{Reason: "NotReported", Message: "it has not reported yet"}}
	}
	var running sync.WaitGroup
	for i, c := range children {
		running.Go(func() {
			c.ObserveWithBackoff(ctx, DefaultBackoff(), func(s Status) {
				mu.Lock()
				defer mu.Unlock() // Held during the report: without it an older judgement could arrive after a newer one.
				inputs[i].noteReport(s)
				report(judge(inputs))
			})
		})
	}
	running.Wait()
}

// ChildInput is what is known of one child.
type ChildInput struct {
	Name string
	Now  Status
	Last Status // the last report that was not Unknown
}

func (i *ChildInput) noteReport(s Status) {
	i.Now = s
	if s.State != Unknown {
		i.Last = s
	}
}

func (i *ChildInput) String() string {
	text := i.Name + " is " + i.Now.State.String()
	if i.Now.Message != "" {
		text += ": " + i.Now.Message
	}
	return text
}

// JudgeFunc makes one status of those of all children.
type JudgeFunc func([]ChildInput) Status

// All is Kleene's AND: one False decides, then one Unknown. Its identity is that of all children.
func All(inputs []ChildInput) Status {
	switch {
	case anyInState(inputs, False):
		return combineState(inputs, False)
	case anyInState(inputs, Unknown):
		return combineState(inputs, Unknown)
	}
	var identities []string
	for _, i := range inputs {
		if i.Now.Identity != "" {
			identities = append(identities, i.Now.Identity)
		}
	}
	s := combineState(inputs, True)
	s.Identity = strings.Join(identities, ",")
	return s
}

// Any returns Kleene's OR: one True decides, then one Unknown. Its identity is that of one child which holds, the
// same one until it is False: what comes besides it, and what is Unknown for a while, must not restart a group.
func Any() JudgeFunc {
	relied := -1
	return func(inputs []ChildInput) Status {
		switch {
		case anyInState(inputs, True):
			// The last known state counts: a child that becomes Unknown for a while must not change the identity.
			if relied < 0 || inputs[relied].Last.State != True {
				relied = slices.IndexFunc(inputs, func(i ChildInput) bool { return i.Now.State == True })
			}
			s := combineState(inputs, True)
			s.Identity = inputs[relied].Last.Identity
			return s
		case anyInState(inputs, Unknown):
			return combineState(inputs, Unknown)
		}
		return combineState(inputs, False)
	}
}

// Not inverts one child. A child that does not hold has no identity.
func Not(inputs []ChildInput) Status {
	s := combineState(inputs, inputs[0].Now.State)
	switch s.State {
	case True:
		s.State = False
	case False:
		s.State = True
	case Unknown:
	}
	return s
}

func anyInState(inputs []ChildInput, state State) bool {
	return slices.ContainsFunc(inputs, func(i ChildInput) bool { return i.Now.State == state })
}

// combineState names the children in the state that decides.
func combineState(inputs []ChildInput, state State) Status {
	var reasons, messages []string
	for _, i := range inputs {
		if i.Now.State == state {
			reasons, messages = append(reasons, i.Now.Reason), append(messages, i.String())
		}
	}
	reasons, messages = sortUnique(reasons), sortUnique(messages)
	s := Status{State: state, Reason: "Several", Message: strings.Join(messages, "; ")}
	if len(reasons) == 1 {
		s.Reason = reasons[0]
	}
	return s
}

func sortUnique(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// HoldTimes is how long a state must hold before it is passed on.
type HoldTimes struct{ True, False time.Duration }

// ObserveStable observes the child and reports its states once they have held, until ctx ends and the child has returned.
func ObserveStable(ctx context.Context, child Child, hold HoldTimes, report func(Status)) {
	var running sync.WaitGroup
	defer running.Wait()
	reports := make(chan Status)
	running.Go(func() {
		child.ObserveWithBackoff(ctx, DefaultBackoff(), func(s Status) {
			select {
			case reports <- s:
			case <-ctx.Done():
			}
		})
	})
	// It is stopped at once; only a state that is settling sets it.
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	d := hysteresis{name: child.Name, hold: hold}
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-reports:
			d.noteReport(s, time.Now())
		case <-timer.C:
		}
		report(d.currentStatus(time.Now()))
		timer.Stop()
		if d.isSettling() {
			timer.Reset(time.Until(d.settlesAt()))
		}
	}
}

// hysteresis is the state of one ObserveStable.
type hysteresis struct {
	name      string
	hold      HoldTimes
	reported  Status // Unknown before a state has held for the first time
	candidate Status // what has to hold since then; nothing does when it is Unknown
	since     time.Time
	inDoubt   bool   // the child is Unknown now
	doubt     Status // its last report then
}

// noteReport takes a report of the child. Unknown does not interrupt a state that is settling.
func (d *hysteresis) noteReport(s Status, at time.Time) {
	d.inDoubt = s.State == Unknown
	switch {
	case d.inDoubt:
		d.doubt = s
		return
	case s.State == d.reported.State:
		d.reported, d.candidate = s, Status{}
		return
	case s.State != d.candidate.State:
		d.since = at
	}
	d.candidate = s
}

// isSettling reports whether time alone will change the status. No state is passed on while the child is Unknown.
func (d *hysteresis) isSettling() bool { return !d.inDoubt && d.candidate.State != Unknown }

func (d *hysteresis) settlesAt() time.Time { return d.since.Add(d.holdTime()) }

func (d *hysteresis) holdTime() time.Duration {
	if d.candidate.State == True {
		return d.hold.True
	}
	return d.hold.False
}

// currentStatus returns what is passed on at a time.
func (d *hysteresis) currentStatus(at time.Time) Status {
	switch {
	case d.inDoubt:
		return d.doubt
	case !d.isSettling():
		return d.reported
	case !at.Before(d.settlesAt()):
		d.reported, d.candidate = d.candidate, Status{}
		return d.reported
	}
	s := d.reported
	s.Reason, s.Message = "Settling", fmt.Sprintf("%s is %s and must stay so for %s", d.name, d.candidate.State, d.holdTime())
	return s
}
