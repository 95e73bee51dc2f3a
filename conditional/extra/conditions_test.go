// SPDX-License-Identifier: Apache-2.0

package extra

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional"
)

// reportLog records the reports of a condition in a synctest bubble.
type reportLog struct {
	mu   sync.Mutex
	said []conditional.Status
}

func (p *reportLog) report(s conditional.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, s)
}

// last waits until all goroutines of the bubble are blocked, and returns the latest report.
func (p *reportLog) last() conditional.Status {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.said) == 0 {
		return conditional.Status{}
	}
	return p.said[len(p.said)-1]
}

func (p *reportLog) want(t *testing.T, what string, state conditional.State, reason string) {
	t.Helper()
	if got := p.last(); got.State != state || got.Reason != reason {
		t.Errorf("%s: got %+v, want %s because of %q", what, got, state, reason)
	}
}

// inBubble runs a condition, and then checks that it returns as soon as its context is cancelled.
func inBubble(t *testing.T, observe func(ctx context.Context, report func(conditional.Status)), test func(p *reportLog)) {
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
	<-time.After(d) // This is the bubble's clock.
	synctest.Wait()
}

// channelChild is a child condition that reports the statuses that the test sends.
func channelChild(name string, says <-chan conditional.Status) conditional.Condition {
	return condition{name: name, observe: func(ctx context.Context, _ conditional.Sources, report func(conditional.Status)) error {
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

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signal, ended, p := make(chan bool), make(chan struct{}), &reportLog{}
		go func() {
			defer close(ended)
			followSignal(t.Context(), signal, p.report)
		}()
		p.want(t, "before a signal", conditional.Unknown, "NoSignal")
		signal <- true
		p.want(t, "on", conditional.True, "SignalTrue")
		signal <- false
		p.want(t, "off", conditional.False, "SignalFalse")
		close(signal)
		<-ended
		p.want(t, "closed", conditional.False, "SignalFalse")
	})
	inBubble(t, func(ctx context.Context, report func(conditional.Status)) { followSignal(ctx, make(chan bool), report) }, func(p *reportLog) {
		p.want(t, "silent", conditional.Unknown, "NoSignal")
	})
}

func TestPoll(t *testing.T) {
	cases := map[string]struct {
		f      func(context.Context) (bool, error)
		state  conditional.State
		reason string
	}{
		"function that returns true: FuncTrue":                                    {func(context.Context) (bool, error) { return true, nil }, conditional.True, "FuncTrue"},
		"function that returns false: FuncFalse":                                  {func(context.Context) (bool, error) { return false, nil }, conditional.False, "FuncFalse"},
		"function that returns an error: FuncFailed":                              {func(context.Context) (bool, error) { return true, errors.New("boom") }, conditional.Unknown, "FuncFailed"},
		"function that panics: FuncPanicked":                                      {func(context.Context) (bool, error) { panic("boom") }, conditional.Unknown, "FuncPanicked"},
		"function that returns its context's error at the deadline: FuncTimedOut": {func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }, conditional.Unknown, "FuncTimedOut"},
		"function that returns another error at the deadline: FuncTimedOut":       {func(ctx context.Context) (bool, error) { <-ctx.Done(); return true, errors.New("closed") }, conditional.Unknown, "FuncTimedOut"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			f := func(ctx context.Context) (bool, error) {
				calls.Add(1)
				return c.f(ctx)
			}
			inBubble(t, func(ctx context.Context, report func(conditional.Status)) { pollFunc(ctx, time.Minute, f, report) }, func(p *reportLog) {
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
		inBubble(t, func(ctx context.Context, report func(conditional.Status)) { pollFunc(ctx, every, f, report) }, func(p *reportLog) {
			p.want(t, "at once", conditional.True, "FuncTrue")
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
			<-release // The function ignores its context.
			return true, nil
		}
		deafChild := Func("deaf", time.Second, deaf)
		says := make(chan conditional.Status)
		ctx, cancel := context.WithCancel(t.Context())
		p, ended := &reportLog{}, make(chan struct{})
		go func() {
			defer close(ended)
			_ = conditional.Any(deafChild, channelChild("other", says)).Observe(ctx, conditional.Sources{}, p.report)
		}()
		pass(time.Hour)
		p.want(t, "one blocks, one is silent", conditional.Unknown, "Several")
		if calls.Load() != 1 {
			t.Errorf("%d calls begun while the first one blocks, want 1", calls.Load())
		}
		says <- conditional.Status{State: conditional.True, Reason: "On"}
		p.want(t, "the other one is heard", conditional.True, "On")
		release <- struct{}{}
		pass(time.Second)
		if calls.Load() != 2 {
			t.Errorf("%d calls after the first one returned, want 2", calls.Load())
		}
		cancel()
		<-ended // The second call still blocks.
		if living.Load() != 1 || most.Load() != 1 {
			t.Errorf("%d calls live, at most %d did at once, want 1 and 1", living.Load(), most.Load())
		}
		close(release)
	})
}

// TestConditionsCombine combines all conditions that need no API server.
func TestConditionsCombine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flag, maintenance := make(chan bool), make(chan bool)
		when := conditional.All(
			Func("probe", time.Minute, yes),
			conditional.Not(Signal("maintenance", maintenance)),
			conditional.Any(Signal("flag", flag), conditional.Not(Func("same-probe", time.Minute, yes))),
		)
		ctx, cancel := context.WithCancel(t.Context())
		p, ended := &reportLog{}, make(chan error)
		go func() { ended <- when.Observe(ctx, conditional.Sources{}, p.report) }()
		want := func(what string, state conditional.State, message string) {
			t.Helper()
			if got := p.last(); got.State != state || !strings.Contains(got.Message, message) {
				t.Errorf("%s: got %+v, want %s because of %q", what, got, state, message)
			}
		}
		want("no signal yet", conditional.Unknown, "no value has been received yet")
		maintenance <- false
		flag <- true
		want("it holds", conditional.True, "probe is True")
		maintenance <- true
		want("maintenance", conditional.False, "Not(maintenance) is False: maintenance is True")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func yes(context.Context) (bool, error) { return true, nil }

func flags() client.ObjectKey { return client.ObjectKey{Namespace: "default", Name: "flags"} }

func present(client.Object) bool { return true }

func TestConditionsHaveNames(t *testing.T) {
	for want, c := range map[string]conditional.Condition{
		"flag":                       Signal("flag", make(chan bool)),
		"probe":                      Func("probe", time.Second, yes),
		"v1.ConfigMap:default:flags": Object(&corev1.ConfigMap{}, flags(), present),
		"On(flag)":                   On(otherCluster{}, Signal("flag", make(chan bool))),
	} {
		if c.String() != want {
			t.Errorf("got %q, want %q", c, want)
		}
	}
}

func TestConditionsRefuseBadUse(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	for name, c := range map[string]struct {
		when conditional.Condition
		want string
	}{
		"Func without a function: rejected":                      {Func("probe", time.Second, nil), "condition Func needs"},
		"Func without a period: rejected":                        {Func("probe", 0, yes), "condition Func needs"},
		"Func without a name: rejected":                          {Func("", time.Second, yes), "condition Func needs"},
		"Signal without a channel: rejected":                     {Signal("flag", nil), "condition Signal needs"},
		"Object without an object: rejected":                     {Object(nil, flags(), present), "condition Object needs"},
		"Object without a name: rejected":                        {Object(&corev1.ConfigMap{}, client.ObjectKey{}, present), "condition Object needs"},
		"Object without a function: rejected":                    {Object(&corev1.ConfigMap{}, flags(), nil), "condition Object needs"},
		"Object with a kind that is not in the scheme: rejected": {Object(&appsv1.Deployment{}, flags(), present), "AddToScheme"},
		"On without a cluster: rejected":                         {On(nil, Signal("flag", make(chan bool))), "condition On needs"},
		"On without a condition: rejected":                       {On(otherCluster{}, nil), "condition On needs"},
		"On with an invalid condition: rejected":                 {On(otherCluster{}, conditional.All()), "condition All combines nothing"},
		"nested Func without a period: rejected":                 {conditional.Not(Func("probe", 0, yes)), "condition Func needs"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := (conditional.Sources{Scheme: scheme}).Validate(c.when); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
