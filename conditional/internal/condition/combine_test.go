// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
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

// allInputs calls test with every combination of n states: 3^n of them.
func allInputs(n int, test func([]ChildInput)) {
	if n == 0 {
		test(nil)
		return
	}
	for _, state := range []State{Unknown, False, True} {
		allInputs(n-1, func(rest []ChildInput) {
			name := string(rune('a' + n - 1))
			status := Status{State: state, Reason: "Told" + state.String(), Message: name + " says so"}
			if state == True {
				status.Identity = "id-" + name
			}
			in := ChildInput{Name: name}
			in.noteReport(status)
			test(append(slices.Clone(rest), in))
		})
	}
}

// truth is Kleene's order: what is false, what is unknown, what is true.
func truth(in ChildInput) int {
	return map[State]int{False: 0, Unknown: 1, True: 2}[in.Now.State]
}

func ofTruth(rank int) State { return []State{False, Unknown, True}[rank] }

func turned(inputs []ChildInput) []ChildInput {
	var out []ChildInput
	for _, i := range inputs {
		out = append(out, ChildInput{Name: i.Name, Now: Not([]ChildInput{i})})
	}
	return out
}

func TestTruthTables(t *testing.T) {
	for n := 1; n <= 3; n++ {
		count := 0
		allInputs(n, func(inputs []ChildInput) {
			count++
			least, most := 2, 0
			for _, i := range inputs {
				least, most = min(least, truth(i)), max(most, truth(i))
			}
			all, some := All(inputs), Any()(inputs)
			if all.State != ofTruth(least) {
				t.Errorf("All%v is %s, want %s", inputs, all.State, ofTruth(least))
			}
			if some.State != ofTruth(most) {
				t.Errorf("Any%v is %s, want %s", inputs, some.State, ofTruth(most))
			}
			if got := Not([]ChildInput{{Now: Any()(turned(inputs))}}); got.State != all.State {
				t.Errorf("De Morgan: All%v is %s, but Not(Any(Not)) is %s", inputs, all.State, got.State)
			}
			for name, s := range map[string]Status{"All": all, "Any": some} {
				checkReport(t, name, s, inputs)
			}
		})
		if want := []int{1, 3, 9, 27}[n]; count != want {
			t.Errorf("%d worlds of %d children, want %d", count, n, want)
		}
	}
}

// checkReport asserts that a report names exactly the children in the state that decides, in a stable order, and that
// only what holds has an identity.
func checkReport(t *testing.T, name string, s Status, inputs []ChildInput) {
	t.Helper()
	var want []string
	for _, i := range inputs {
		if i.Now.State == s.State {
			want = append(want, i.Name+" is "+s.State.String()+": "+i.Name+" says so")
		}
	}
	if diff := cmp.Diff(strings.Join(want, "; "), s.Message); diff != "" {
		t.Errorf("message of %s%v (-want +got):\n%s", name, inputs, diff)
	}
	if s.Reason != "Told"+s.State.String() {
		t.Errorf("reason of %s%v is %q", name, inputs, s.Reason)
	}
	if (s.Identity != "") != (s.State == True) {
		t.Errorf("%s%v is %s with identity %q", name, inputs, s.State, s.Identity)
	}
	backward := slices.Clone(inputs)
	slices.Reverse(backward)
	judge := map[string]JudgeFunc{"All": All, "Any": Any()}[name]
	if got := judge(backward); got.Message != s.Message || got.Reason != s.Reason {
		t.Errorf("%s%v says %q, in another order %q", name, inputs, s.Message, got.Message)
	}
}

func TestNot(t *testing.T) {
	for state, want := range map[State]State{True: False, False: True, Unknown: Unknown} {
		got := Not([]ChildInput{{Name: "c", Now: Status{State: state, Reason: "R", Message: "m", Identity: "id"}}})
		if diff := cmp.Diff(Status{State: want, Reason: "R", Message: "c is " + state.String() + ": m"}, got); diff != "" {
			t.Errorf("Not(%s) (-want +got):\n%s", state, diff)
		}
	}
}

func TestReasonsThatDiffer(t *testing.T) {
	got := All([]ChildInput{
		{Name: "b", Now: Status{State: False, Reason: "Absent", Message: "no"}},
		{Name: "a", Now: Status{State: False, Reason: "Off"}},
		{Name: "c", Now: Status{State: Unknown, Reason: "Outage"}},
	})
	if diff := cmp.Diff(Status{State: False, Reason: "Several", Message: "a is False; b is False: no"}, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestAllJoinsIdentities(t *testing.T) {
	in := func(id string) ChildInput { return ChildInput{Now: Status{State: True, Identity: id}} }
	if got := All([]ChildInput{in("x"), in(""), in("y")}).Identity; got != "x,y" {
		t.Errorf("identity is %q, want that of all children that have one", got)
	}
}

func TestAnyStaysWithWhatItReliesOn(t *testing.T) {
	is := func(state State, identity string) Status { return Status{State: state, Identity: identity} }
	steps := []struct {
		name  string
		child int
		told  Status
		state State
		want  string
	}{
		{"the second holds first", 1, is(True, "b"), True, "b"},
		{"the first comes besides it", 0, is(True, "a"), True, "b"},
		{"the second is in doubt", 1, is(Unknown, ""), True, "b"},
		{"both are", 0, is(Unknown, ""), Unknown, ""},
		{"the first is back", 0, is(True, "a"), True, "b"},
		{"the second is back with another identity", 1, is(True, "b2"), True, "b2"},
		{"the second is gone", 1, is(False, ""), True, "a"},
		{"the second comes again", 1, is(True, "b3"), True, "a"},
		{"the first is gone", 0, is(False, ""), True, "b3"},
		{"all are gone", 1, is(False, ""), False, ""},
	}
	judge, inputs := Any(), make([]ChildInput, 2)
	for _, s := range steps {
		inputs[s.child].noteReport(s.told)
		if got := judge(inputs); got.State != s.state || got.Identity != s.want {
			t.Errorf("%s: got %s %q, want %s %q", s.name, got.State, got.Identity, s.state, s.want)
		}
	}
}

// step waits, says something unless it is silent, and wants what is passed on then.
type step struct {
	after time.Duration
	say   string // "", "true", "other", "false" or "unknown"
	want  string // state and reason
}

func TestStable(t *testing.T) {
	words := map[string]Status{
		"true":    {State: True, Reason: "On", Identity: "x"},
		"other":   {State: True, Reason: "Other", Identity: "y"},
		"false":   {State: False, Reason: "Off"},
		"unknown": {State: Unknown, Reason: "Outage"},
	}
	cases := map[string][]step{ // True must hold for 10 s, False for 30 s.
		"true passes after its span":                  {{0, "true", "Unknown Settling"}, {9 * time.Second, "", "Unknown Settling"}, {time.Second, "", "True On"}},
		"false passes after its span":                 {{0, "false", "Unknown Settling"}, {29 * time.Second, "", "Unknown Settling"}, {time.Second, "", "False Off"}},
		"a short dip is not seen":                     {{0, "true", "Unknown Settling"}, {10 * time.Second, "", "True On"}, {0, "false", "True Settling"}, {29 * time.Second, "true", "True On"}, {time.Hour, "", "True On"}},
		"a dip begins anew":                           {{0, "true", "Unknown Settling"}, {9 * time.Second, "false", "Unknown Settling"}, {time.Second, "true", "Unknown Settling"}, {9 * time.Second, "", "Unknown Settling"}, {time.Second, "", "True On"}},
		"unknown passes at once":                      {{0, "true", "Unknown Settling"}, {10 * time.Second, "unknown", "Unknown Outage"}, {time.Hour, "", "Unknown Outage"}, {0, "true", "True On"}},
		"unknown does not reset the span":             {{0, "true", "Unknown Settling"}, {6 * time.Second, "unknown", "Unknown Outage"}, {2 * time.Second, "true", "Unknown Settling"}, {2 * time.Second, "", "True On"}},
		"a span that ends in doubt waits for clarity": {{0, "true", "Unknown Settling"}, {6 * time.Second, "unknown", "Unknown Outage"}, {time.Hour, "", "Unknown Outage"}, {0, "true", "True On"}},
		"doubt and then the contrary begins anew":     {{0, "true", "Unknown Settling"}, {6 * time.Second, "unknown", "Unknown Outage"}, {time.Hour, "false", "Unknown Settling"}, {30 * time.Second, "", "False Off"}},
		"another identity passes at once":             {{0, "true", "Unknown Settling"}, {10 * time.Second, "", "True On"}, {0, "other", "True Other"}},
		"the newest report of a state passes":         {{0, "true", "Unknown Settling"}, {9 * time.Second, "other", "Unknown Settling"}, {time.Second, "", "True Other"}},
		"it settles to and fro":                       {{0, "true", "Unknown Settling"}, {10 * time.Second, "false", "True Settling"}, {30 * time.Second, "true", "False Settling"}, {10 * time.Second, "", "True On"}},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				says, p, ended := make(chan Status), &reportLog{}, make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					defer close(ended)
					ObserveStable(ctx, channelChild("c", says), HoldTimes{True: 10 * time.Second, False: 30 * time.Second}, p.report)
				}()
				for i, s := range steps {
					pass(s.after)
					if s.say != "" {
						says <- words[s.say]
					}
					if got := p.last(); got.State.String()+" "+got.Reason != s.want {
						t.Errorf("step %d: got %+v, want %s", i, got, s.want)
					}
				}
				cancel()
				<-ended
			})
		})
	}
}

func TestStableKeepsTheIdentityWhileItSettles(t *testing.T) {
	at := time.Unix(1000, 0)
	d := hysteresis{name: "c", hold: HoldTimes{False: time.Minute}}
	d.noteReport(Status{State: True, Reason: "On", Identity: "x"}, at)
	want := Status{State: True, Reason: "On", Identity: "x"}
	if diff := cmp.Diff(want, d.currentStatus(at)); diff != "" {
		t.Errorf("without a span (-want +got):\n%s", diff)
	}
	d.noteReport(Status{State: False, Reason: "Off"}, at)
	want.Reason, want.Message = "Settling", "c is False and must stay so for 1m0s"
	if diff := cmp.Diff(want, d.currentStatus(at)); diff != "" {
		t.Errorf("settling (-want +got):\n%s", diff)
	}
}

func TestStableIsIdleInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says, p, ended := make(chan Status), &reportLog{}, make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(ended)
			ObserveStable(ctx, channelChild("c", says), HoldTimes{True: time.Second}, p.report)
		}()
		says <- Status{State: True}
		says <- Status{State: Unknown, Reason: "Outage"}
		pass(time.Hour)
		p.want(t, "in doubt", Unknown, "Outage")
		if len(p.said) != 2 {
			t.Errorf("%d reports, want 2: the span's end says nothing in doubt", len(p.said))
		}
		cancel()
		<-ended
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
