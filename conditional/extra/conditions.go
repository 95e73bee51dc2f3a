// SPDX-License-Identifier: Apache-2.0

// Package extra contains conditions and a reconciler that few projects need. It uses only exported names of package
// conditional, so projects can implement such conditions themselves.
package extra

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/torpor-dev/torpor/conditional"
)

// On observes c in another cluster: Served and Object observe the kinds and the object at its API server. The cluster
// need not have been started. The group still runs with its own manager.
func On(cl cluster.Cluster, c conditional.Condition) conditional.Condition {
	return condition{
		name:    fmt.Sprintf("On(%v)", c),
		mistake: errorUnless(cl != nil && c != nil, "condition On needs a cluster and a condition, found nil: pass a cluster, for example of cluster.New, and a condition"),
		validate: func(src conditional.Sources) error {
			if err := src.In(cl).Validate(c); err != nil {
				return fmt.Errorf("condition On: %w", err)
			}
			return nil
		},
		observe: func(ctx context.Context, src conditional.Sources, report func(conditional.Status)) error {
			return c.Observe(ctx, src.In(cl), report)
		},
	}
}

// Func is true while f returns true. f is called immediately and then once per period. Its context is cancelled after
// one period, or after 10 s if the period is longer. An error, a panic or a late result counts as Unknown. A call that
// ignores its context delays only the next call.
func Func(name string, every time.Duration, f func(context.Context) (bool, error)) conditional.Condition {
	return condition{
		name:    name,
		mistake: errorUnless(name != "" && every > 0 && f != nil, "condition Func needs a name, a period longer than 0 and a function: pass all three"),
		observe: func(ctx context.Context, _ conditional.Sources, report func(conditional.Status)) error {
			pollFunc(ctx, every, f, report)
			return nil
		},
	}
}

// Signal is true after true was received from the channel, until false is received. It is Unknown until the first
// value. Closing the channel keeps the last state. Use a channel in one group only, because each value has one
// receiver.
func Signal(name string, ch <-chan bool) conditional.Condition {
	return condition{
		name:    name,
		mistake: errorUnless(name != "" && ch != nil, "condition Signal needs a name and a channel: pass both"),
		observe: func(ctx context.Context, _ conditional.Sources, report func(conditional.Status)) error {
			followSignal(ctx, ch, report)
			return nil
		},
	}
}

type condition struct {
	name     string
	mistake  error                           // mistake is the error for incorrect use that is detected without Sources
	validate func(conditional.Sources) error // validate may be nil
	observe  func(context.Context, conditional.Sources, func(conditional.Status)) error
}

func errorUnless(ok bool, text string) error {
	if ok {
		return nil
	}
	return errors.New(text)
}

func (c condition) String() string { return c.name }

// Validate returns an error for incorrect use of the condition.
func (c condition) Validate(src conditional.Sources) error {
	if c.mistake != nil || c.validate == nil {
		return c.mistake
	}
	return c.validate(src)
}

func (c condition) Observe(ctx context.Context, src conditional.Sources, report func(conditional.Status)) error {
	return c.observe(ctx, src, report)
}

func stateFromBool(holds bool) conditional.State {
	if holds {
		return conditional.True
	}
	return conditional.False
}

// maxCallTime limits one call of the function of Func.
const maxCallTime = 10 * time.Second

// pollFunc calls f immediately and then once per period until ctx is cancelled, and reports its result. A call that
// exceeds its deadline counts as Unknown. pollFunc does not wait for such a call when ctx is cancelled, but no other
// call starts before it has returned.
func pollFunc(ctx context.Context, every time.Duration, f func(context.Context) (bool, error), report func(conditional.Status)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil { // The select below may choose a tick even after ctx was cancelled.
		callWithDeadline(ctx, min(every, maxCallTime), f, report)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func callWithDeadline(ctx context.Context, limit time.Duration, f func(context.Context) (bool, error), report func(conditional.Status)) {
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer := make(chan conditional.Status, 1) // The channel is buffered, so the goroutine of a late call ends when the call returns.
	go func() { answer <- callFunc(timed, limit, f) }()
	select {
	case s := <-answer:
		if ctx.Err() == nil {
			report(s)
		}
		return
	case <-timed.Done():
	}
	if ctx.Err() != nil {
		return
	}
	report(timeoutStatus(limit))
	// The next call must not start before this one has returned, because the function need not be safe for concurrent
	// use.
	select {
	case <-answer:
	case <-ctx.Done():
	}
}

func callFunc(ctx context.Context, limit time.Duration, f func(context.Context) (bool, error)) (s conditional.Status) {
	defer func() {
		if p := recover(); p != nil {
			s = conditional.Status{State: conditional.Unknown, Reason: "FuncPanicked", Message: fmt.Sprint(p)}
		}
	}()
	holds, err := f(ctx)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return timeoutStatus(limit)
	case err != nil:
		return conditional.Status{State: conditional.Unknown, Reason: "FuncFailed", Message: err.Error()}
	}
	return conditional.Status{State: stateFromBool(holds), Reason: "Func" + stateFromBool(holds).String()}
}

func timeoutStatus(limit time.Duration) conditional.Status {
	return conditional.Status{State: conditional.Unknown, Reason: "FuncTimedOut", Message: "no answer within " + limit.String()}
}

// followSignal reports the values of the channel until it is closed or ctx is cancelled.
func followSignal(ctx context.Context, signal <-chan bool, report func(conditional.Status)) {
	report(conditional.Status{State: conditional.Unknown, Reason: "NoSignal", Message: "no value has been received yet"})
	for {
		select {
		case on, open := <-signal:
			if !open {
				return
			}
			report(conditional.Status{State: stateFromBool(on), Reason: "Signal" + stateFromBool(on).String()})
		case <-ctx.Done():
			return
		}
	}
}
