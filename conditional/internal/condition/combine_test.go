// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// reportLog keeps the reports of a condition that runs in a synctest bubble.
type reportLog struct {
	mu   sync.Mutex
	said []Status
}

func (p *reportLog) report(s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, s)
}

// last lets everything happen that happens at once, and returns the newest report.
func (p *reportLog) last() Status {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.said) == 0 {
		return Status{}
	}
	return p.said[len(p.said)-1]
}

func (p *reportLog) want(t *testing.T, what string, state State, reason string) {
	t.Helper()
	if got := p.last(); got.State != state || got.Reason != reason {
		t.Errorf("%s: got %+v, want %s because of %q", what, got, state, reason)
	}
}

// inBubble runs a condition, then asserts that it ends at once with its context.
func inBubble(t *testing.T, observe func(ctx context.Context, report func(Status)), test func(p *reportLog)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &reportLog{}
		var ended atomic.Bool
		go func() {
			observe(ctx, p.report)
			ended.Store(true)
		}()
		test(p)
		cancel()
		synctest.Wait()
		if !ended.Load() {
			t.Error("it has not ended with its context")
		}
	})
}

func pass(d time.Duration) {
	<-time.After(d) // The bubble's clock.
	synctest.Wait()
}

// channelChild is a child that says what the test says.
func channelChild(name string, says <-chan Status) Child {
	return Child{Name: name, Observe: func(ctx context.Context, report func(Status)) error {
		for {
			select {
			case s := <-says:
				report(s)
			case <-ctx.Done():
				return nil
			}
		}
	}}
}

func TestCombineObservesAgainAfterAFailure(t *testing.T) {
	for name, fail := range map[string]func() error{
		"an error": func() error { return errors.New("boom") },
		"a panic":  func() error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			var calls, living atomic.Int32
			frail := Child{Name: "frail", Observe: func(ctx context.Context, report func(Status)) error {
				if calls.Add(1) <= 2 {
					return fail()
				}
				report(Status{State: True})
				<-ctx.Done()
				return nil
			}}
			steady := Child{Name: "steady", Observe: func(ctx context.Context, report func(Status)) error {
				defer living.Add(-1)
				living.Add(1)
				report(Status{State: True})
				<-ctx.Done()
				return nil
			}}
			inBubble(t, func(ctx context.Context, report func(Status)) {
				ObserveCombined(ctx, []Child{frail, steady}, All, report)
			}, func(p *reportLog) {
				p.want(t, "at first", Unknown, "ObserveFailed")
				if got := p.last().Message; !strings.HasPrefix(got, "frail is Unknown: ") || !strings.Contains(got, "boom") {
					t.Errorf("message is %q, want the child and the cause", got)
				}
				pass(10 * time.Second)
				p.want(t, "after the back-off", True, "")
				if calls.Load() != 3 || living.Load() != 1 {
					t.Errorf("observed %d times with %d steady child, want 3 and 1", calls.Load(), living.Load())
				}
			})
			if living.Load() != 0 {
				t.Error("a child outlived its parent")
			}
		})
	}
}

func TestCombineReportsEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := make(chan Status), make(chan Status)
		ctx, cancel := context.WithCancel(t.Context())
		p, ended := &reportLog{}, make(chan struct{})
		go func() {
			defer close(ended)
			ObserveCombined(ctx, []Child{channelChild("a", a), channelChild("b", b)}, Any(), p.report)
		}()
		a <- Status{State: False, Reason: "Off"}
		p.want(t, "one has not reported", Unknown, "NotReported")
		b <- Status{State: False, Reason: "Off"}
		p.want(t, "both are false", False, "Off")
		b <- Status{State: True, Reason: "On", Identity: "x"}
		p.want(t, "one is true", True, "On")
		cancel()
		<-ended
	})
}

func TestKeepForgetsOldFailures(t *testing.T) {
	var calls atomic.Int32
	frail := Child{Observe: func(_ context.Context, report func(Status)) error {
		if calls.Add(1) == 6 { // It works for a while between its failures.
			report(Status{State: True, Reason: "Works"})
			<-time.After(time.Hour)
		}
		return errors.New("boom")
	}}
	inBubble(t, func(ctx context.Context, report func(Status)) {
		frail.ObserveWithBackoff(ctx, DefaultBackoff(), report)
	}, func(p *reportLog) {
		pass(40 * time.Second) // 1 + 2 + 4 + 8 + 16 s and a tenth of jitter.
		p.want(t, "after five failures", True, "Works")
		pass(time.Hour)
		if calls.Load() < 8 {
			t.Errorf("%d calls soon after the sixth one failed: the back-off went on where it was an hour ago", calls.Load())
		}
	})
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signal, ended, p := make(chan bool), make(chan struct{}), &reportLog{}
		go func() {
			defer close(ended)
			FollowSignal(t.Context(), signal, p.report)
		}()
		p.want(t, "before a signal", Unknown, "NoSignal")
		signal <- true
		p.want(t, "on", True, "SignalTrue")
		signal <- false
		p.want(t, "off", False, "SignalFalse")
		close(signal)
		<-ended
		p.want(t, "closed", False, "SignalFalse")
	})
	inBubble(t, func(ctx context.Context, report func(Status)) { FollowSignal(ctx, make(chan bool), report) }, func(p *reportLog) {
		p.want(t, "silent", Unknown, "NoSignal")
	})
}
