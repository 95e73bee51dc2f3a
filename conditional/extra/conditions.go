// SPDX-License-Identifier: Apache-2.0

// Package extra contains conditions and a reconciler that few projects need. It uses only the exported names of
// package conditional, so that a project can write such conditions itself.
package extra

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/torpor-dev/torpor/conditional"
)

// On observes c at the API server of another cluster: Served looks for its kinds there, Object watches there. The
// cluster need not have been started. The group still runs with its own manager.
func On(cl cluster.Cluster, c conditional.Condition) conditional.Condition {
	return condition{
		name:    fmt.Sprintf("On(%v)", c),
		mistake: errorUnless(cl != nil && c != nil, "condition On needs a cluster and a condition, found nil: pass the cluster of cluster.New, and a condition"),
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

// Func holds while f returns true. f is called at once and then once per period. Its context ends after one period,
// or after 10 s if that is less. An error, a panic or a late answer counts as Unknown. A call that ignores its
// context delays only the next call.
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

// Signal holds after true was received from the channel, until false is received. Before the first value it is
// Unknown. Closing the channel keeps the last state. Use a channel in one group only: each value has one reader.
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
	mistake  error                           // mistake is wrong use that does not depend on the sources
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

// Validate returns the wrong use of the condition.
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

// maxCallTime limits one call of a function.
const maxCallTime = 10 * time.Second

// pollFunc calls f at once and then once per period until ctx ends, and reports its result. A call that exceeds its
// deadline counts as Unknown. It is not waited for when ctx ends, but no other call begins before it has returned.
func pollFunc(ctx context.Context, every time.Duration, f func(context.Context) (bool, error), report func(conditional.Status)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil { // The select below may choose a tick although ctx has ended.
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
	answer := make(chan conditional.Status, 1) // Buffered, so that the goroutine of a late call ends when the call returns.
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
	// The next call must not begin before this one has returned: the function need not be safe for concurrent use.
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

// followSignal reports the values of the channel until it is closed or ctx ends.
func followSignal(ctx context.Context, signal <-chan bool, report func(conditional.Status)) {
	report(conditional.Status{State: conditional.Unknown, Reason: "NoSignal", Message: "nothing has been signalled yet"})
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
