// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// State says whether a condition holds. It prints, and marshals, as Unknown, False or True.
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

// defaultBackoff grows from 1 s to 5 min.
func defaultBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 1 << 30, Cap: 5 * time.Minute}
}

// observeWithBackoff observes a condition until ctx ends, again with a back-off after an error or a panic, which it reports as
// Unknown. The back-off begins anew after an observation that lasted longer than its Cap.
func observeWithBackoff(ctx context.Context, c Condition, src Sources, backoff wait.Backoff, report func(Status)) {
	pause := backoff
	for ctx.Err() == nil {
		began := time.Now()
		err := observeOnce(ctx, c, src, report)
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

func observeOnce(ctx context.Context, c Condition, src Sources, report func(Status)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("condition %s panicked: %v", c, p)
		}
	}()
	if err := c.Observe(ctx, src, report); err != nil {
		return fmt.Errorf("observe condition %s: %w", c, err)
	}
	return nil
}

// observeCombined observes all conditions at once and reports the judgement after each of their reports. It returns after the
// last one has: when ctx ended, or when nothing can change any more.
func observeCombined(ctx context.Context, of []Condition, src Sources, judge judgeFunc, report func(Status)) {
	var mu sync.Mutex
	inputs := make([]judgeInput, len(of))
	for i, c := range of {
		inputs[i] = judgeInput{name: c.String(), now: Status{Reason: "NotReported", Message: "it has not reported yet"}}
	}
	var running sync.WaitGroup
	for i, c := range of {
		running.Go(func() {
			observeWithBackoff(ctx, c, src, defaultBackoff(), func(s Status) {
				mu.Lock()
				defer mu.Unlock() // Held during the report: without it an older judgement could arrive after a newer one.
				inputs[i].noteReport(s)
				report(judge(inputs))
			})
		})
	}
	running.Wait()
}

// judgeInput is what is known of one condition.
type judgeInput struct {
	name string
	now  Status
	last Status // the last report that was not Unknown
}

func (i *judgeInput) noteReport(s Status) {
	i.now = s
	if s.State != Unknown {
		i.last = s
	}
}

func (i *judgeInput) String() string {
	text := i.name + " is " + i.now.State.String()
	if i.now.Message != "" {
		text += ": " + i.now.Message
	}
	return text
}

// judgeFunc makes one status of those of all conditions.
type judgeFunc func([]judgeInput) Status

// judgeAll is Kleene's AND: one False decides, then one Unknown. Its identity is that of all conditions.
func judgeAll(inputs []judgeInput) Status {
	switch {
	case anyInState(inputs, False):
		return combineState(inputs, False)
	case anyInState(inputs, Unknown):
		return combineState(inputs, Unknown)
	}
	var identities []string
	for _, i := range inputs {
		if i.now.Identity != "" {
			identities = append(identities, i.now.Identity)
		}
	}
	s := combineState(inputs, True)
	s.Identity = strings.Join(identities, ",")
	return s
}

// newAnyJudge returns Kleene's OR: one True decides, then one Unknown. Its identity is that of one condition which holds, the
// same one until it is False: what comes besides it, and what is Unknown for a while, must not restart a group.
func newAnyJudge() judgeFunc {
	relied := -1
	return func(inputs []judgeInput) Status {
		switch {
		case anyInState(inputs, True):
			// The last known state counts: a condition that becomes Unknown for a while must not change the identity.
			if relied < 0 || inputs[relied].last.State != True {
				relied = slices.IndexFunc(inputs, func(i judgeInput) bool { return i.now.State == True })
			}
			s := combineState(inputs, True)
			s.Identity = inputs[relied].last.Identity
			return s
		case anyInState(inputs, Unknown):
			return combineState(inputs, Unknown)
		}
		return combineState(inputs, False)
	}
}

// judgeNot inverts one condition. One that does not hold has no identity.
func judgeNot(inputs []judgeInput) Status {
	s := combineState(inputs, inputs[0].now.State)
	switch s.State {
	case True:
		s.State = False
	case False:
		s.State = True
	case Unknown:
	}
	return s
}

func anyInState(inputs []judgeInput, state State) bool {
	return slices.ContainsFunc(inputs, func(i judgeInput) bool { return i.now.State == state })
}

// combineState names the conditions in the state that decides.
func combineState(inputs []judgeInput, state State) Status {
	var reasons, messages []string
	for _, i := range inputs {
		if i.now.State == state {
			reasons, messages = append(reasons, i.now.Reason), append(messages, i.String())
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
