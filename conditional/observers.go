// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxCallTime bounds one call of a function.
const maxCallTime = 10 * time.Second

// pollFunc calls f at once and then every so often until ctx ends, and reports its result. A call that outlives its
// deadline is Unknown and is not waited for when ctx ends, but no other call begins before it has returned.
func pollFunc(ctx context.Context, every time.Duration, f func(context.Context) (bool, error), report func(Status)) {
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

func callWithDeadline(ctx context.Context, limit time.Duration, f func(context.Context) (bool, error), report func(Status)) {
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer := make(chan Status, 1) // Buffered, so that the goroutine of a late call ends when the call returns.
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
	// Another call must not begin before this one has returned: the function need not be safe for concurrent use.
	select {
	case <-answer:
	case <-ctx.Done():
	}
}

func callFunc(ctx context.Context, limit time.Duration, f func(context.Context) (bool, error)) (s Status) {
	defer func() {
		if p := recover(); p != nil {
			s = Status{State: Unknown, Reason: "FuncPanicked", Message: fmt.Sprint(p)}
		}
	}()
	holds, err := f(ctx)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return timeoutStatus(limit)
	case err != nil:
		return Status{State: Unknown, Reason: "FuncFailed", Message: err.Error()}
	}
	return Status{State: stateFromBool(holds), Reason: "Func" + stateFromBool(holds).String()}
}

func timeoutStatus(limit time.Duration) Status {
	return Status{State: Unknown, Reason: "FuncTimedOut", Message: "no answer within " + limit.String()}
}

// followSignal reports the values of the channel until it is closed or ctx ends.
func followSignal(ctx context.Context, signal <-chan bool, report func(Status)) {
	report(Status{State: Unknown, Reason: "NoSignal", Message: "nothing has been signalled yet"})
	for {
		select {
		case on, open := <-signal:
			if !open {
				return
			}
			report(Status{State: stateFromBool(on), Reason: "Signal" + stateFromBool(on).String()})
		case <-ctx.Done():
			return
		}
	}
}
