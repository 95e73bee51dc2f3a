// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPoll(t *testing.T) {
	cases := map[string]struct {
		f      func(context.Context) (bool, error)
		state  State
		reason string
	}{
		"holds":                                  {func(context.Context) (bool, error) { return true, nil }, True, "FuncTrue"},
		"function that returns false":            {func(context.Context) (bool, error) { return false, nil }, False, "FuncFalse"},
		"fails":                                  {func(context.Context) (bool, error) { return true, errors.New("boom") }, Unknown, "FuncFailed"},
		"panics":                                 {func(context.Context) (bool, error) { panic("boom") }, Unknown, "FuncPanicked"},
		"function that returns at its deadline":  {func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }, Unknown, "FuncTimedOut"},
		"function that fails after its deadline": {func(ctx context.Context) (bool, error) { <-ctx.Done(); return true, errors.New("closed") }, Unknown, "FuncTimedOut"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			f := func(ctx context.Context) (bool, error) {
				calls.Add(1)
				return c.f(ctx)
			}
			inBubble(t, func(ctx context.Context, report func(Status)) { pollFunc(ctx, time.Minute, f, report) }, func(p *reportLog) {
				pass(11 * time.Second)
				p.want(t, name, c.state, c.reason)
				pass(9*time.Minute + time.Second)
				p.want(t, name, c.state, c.reason)
				if calls.Load() != 10 {
					t.Errorf("%d calls in less than ten minutes, want 10", calls.Load())
				}
			})
		})
	}
}

func TestPollBoundsACall(t *testing.T) {
	for every, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: 10 * time.Second} {
		var limit atomic.Int64
		f := func(ctx context.Context) (bool, error) {
			deadline, _ := ctx.Deadline()
			limit.Store(int64(time.Until(deadline)))
			return true, ctx.Err()
		}
		inBubble(t, func(ctx context.Context, report func(Status)) { pollFunc(ctx, every, f, report) }, func(p *reportLog) {
			p.want(t, "at once", True, "FuncTrue")
		})
		if got := time.Duration(limit.Load()); got != want {
			t.Errorf("every %s: a call has %s, want %s", every, got, want)
		}
	}
}

func TestPollDoesNotWaitForACallThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, living, most atomic.Int32
		release := make(chan struct{})
		deaf := func(context.Context) (bool, error) {
			most.Store(max(most.Load(), living.Add(1)))
			defer living.Add(-1)
			calls.Add(1)
			<-release // It ignores its context.
			return true, nil
		}
		deafChild := builtinCondition{name: "deaf", observeFunc: func(ctx context.Context, _ Sources, report func(Status)) error {
			pollFunc(ctx, time.Second, deaf, report)
			return nil
		}}
		says := make(chan Status)
		ctx, cancel := context.WithCancel(t.Context())
		p, ended := &reportLog{}, make(chan struct{})
		go func() {
			defer close(ended)
			observeCombined(ctx, []Condition{deafChild, channelChild("other", says)}, Sources{}, newAnyJudge(), p.report)
		}()
		pass(time.Hour)
		p.want(t, "one blocks, one is silent", Unknown, "Several")
		if calls.Load() != 1 {
			t.Errorf("%d calls begun while the first one blocks, want 1", calls.Load())
		}
		says <- Status{State: True, Reason: "On"}
		p.want(t, "the other one is heard", True, "On")
		release <- struct{}{}
		pass(time.Second)
		if calls.Load() != 2 {
			t.Errorf("%d calls after the first one returned, want 2", calls.Load())
		}
		cancel()
		<-ended // Although the second call still blocks.
		if living.Load() != 1 || most.Load() != 1 {
			t.Errorf("%d calls live, at most %d did at once, want 1 and 1", living.Load(), most.Load())
		}
		close(release)
	})
}
