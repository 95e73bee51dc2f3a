// SPDX-License-Identifier: Apache-2.0

package conditional

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
)

// reportLog records the reports of a condition in a synctest bubble.
type reportLog struct {
	mu   sync.Mutex
	said []Status
}

func (p *reportLog) report(s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, s)
}

// last waits until all goroutines of the bubble are blocked, and returns the latest report.
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

// inBubble runs a condition, and then checks that it returns as soon as its context is cancelled.
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
	<-time.After(d) // This is the bubble's clock.
	synctest.Wait()
}

// channelChild is a child condition that reports the statuses that the test sends.
func channelChild(name string, says <-chan Status) Condition {
	return builtinCondition{name: name, observeFunc: func(ctx context.Context, _ Sources, report func(Status)) error {
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
		"an error: the observation is repeated": func() error { return errors.New("boom") },
		"a panic: the observation is repeated":  func() error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			var calls, living atomic.Int32
			frail := builtinCondition{name: "frail", observeFunc: func(ctx context.Context, _ Sources, report func(Status)) error {
				if calls.Add(1) <= 2 {
					return fail()
				}
				report(Status{State: True})
				<-ctx.Done()
				return nil
			}}
			steady := builtinCondition{name: "steady", observeFunc: func(ctx context.Context, _ Sources, report func(Status)) error {
				defer living.Add(-1)
				living.Add(1)
				report(Status{State: True})
				<-ctx.Done()
				return nil
			}}
			inBubble(t, func(ctx context.Context, report func(Status)) {
				observeCombined(ctx, []Condition{frail, steady}, Sources{}, judgeAll, report)
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
			observeCombined(ctx, []Condition{channelChild("a", a), channelChild("b", b)}, Sources{}, newAnyJudge(), p.report)
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
	frail := builtinCondition{name: "frail", observeFunc: func(_ context.Context, _ Sources, report func(Status)) error {
		if calls.Add(1) == 6 { // The sixth observation reports True, and fails an hour later.
			report(Status{State: True, Reason: "Works"})
			<-time.After(time.Hour)
		}
		return errors.New("boom")
	}}
	inBubble(t, func(ctx context.Context, report func(Status)) {
		observeWithBackoff(ctx, frail, Sources{}, defaultBackoff(), report)
	}, func(p *reportLog) {
		pass(40 * time.Second) // The delays are 1 + 2 + 4 + 8 + 16 s, with up to a tenth of jitter.
		p.want(t, "after five failures", True, "Works")
		pass(time.Hour)
		if calls.Load() < 8 {
			t.Errorf("%d calls soon after the sixth one failed: the back-off went on where it was an hour ago", calls.Load())
		}
	})
}

// allInputs calls test with each of the 3^n combinations of n states.
func allInputs(n int, test func([]judgeInput)) {
	if n == 0 {
		test(nil)
		return
	}
	for _, state := range []State{Unknown, False, True} {
		allInputs(n-1, func(rest []judgeInput) {
			name := string(rune('a' + n - 1))
			status := Status{State: state, Reason: "Told" + state.String(), Message: name + " says so"}
			if state == True {
				status.Identity = "id-" + name
			}
			in := judgeInput{name: name}
			in.noteReport(status)
			test(append(slices.Clone(rest), in))
		})
	}
}

// truth maps a state to its rank in Kleene's order: False, Unknown, True.
func truth(in judgeInput) int {
	return map[State]int{False: 0, Unknown: 1, True: 2}[in.now.State]
}

func ofTruth(rank int) State { return []State{False, Unknown, True}[rank] }

func turned(inputs []judgeInput) []judgeInput {
	var out []judgeInput
	for _, i := range inputs {
		out = append(out, judgeInput{name: i.name, now: judgeNot([]judgeInput{i})})
	}
	return out
}

func TestTruthTables(t *testing.T) {
	for n := 1; n <= 3; n++ {
		count := 0
		allInputs(n, func(inputs []judgeInput) {
			count++
			least, most := 2, 0
			for _, i := range inputs {
				least, most = min(least, truth(i)), max(most, truth(i))
			}
			all, some := judgeAll(inputs), newAnyJudge()(inputs)
			if all.State != ofTruth(least) {
				t.Errorf("All%v is %s, want %s", inputs, all.State, ofTruth(least))
			}
			if some.State != ofTruth(most) {
				t.Errorf("Any%v is %s, want %s", inputs, some.State, ofTruth(most))
			}
			if got := judgeNot([]judgeInput{{now: newAnyJudge()(turned(inputs))}}); got.State != all.State {
				t.Errorf("De Morgan: All%v is %s, but judgeNot(Any(judgeNot)) is %s", inputs, all.State, got.State)
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

// checkReport expects that a report lists exactly the children in the deciding state, in a stable order, and that it
// has an identity only if the condition is true.
func checkReport(t *testing.T, name string, s Status, inputs []judgeInput) {
	t.Helper()
	var want []string
	for _, i := range inputs {
		if i.now.State == s.State {
			want = append(want, i.name+" is "+s.State.String()+": "+i.name+" says so")
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
	judge := map[string]judgeFunc{"All": judgeAll, "Any": newAnyJudge()}[name]
	if got := judge(backward); got.Message != s.Message || got.Reason != s.Reason {
		t.Errorf("%s%v says %q, in another order %q", name, inputs, s.Message, got.Message)
	}
}

func TestNot(t *testing.T) {
	for state, want := range map[State]State{True: False, False: True, Unknown: Unknown} {
		got := judgeNot([]judgeInput{{name: "c", now: Status{State: state, Reason: "R", Message: "m", Identity: "id"}}})
		if diff := cmp.Diff(Status{State: want, Reason: "R", Message: "c is " + state.String() + ": m"}, got); diff != "" {
			t.Errorf("Not(%s) (-want +got):\n%s", state, diff)
		}
	}
}

func TestReasonsThatDiffer(t *testing.T) {
	got := judgeAll([]judgeInput{
		{name: "b", now: Status{State: False, Reason: "Absent", Message: "no"}},
		{name: "a", now: Status{State: False, Reason: "Off"}},
		{name: "c", now: Status{State: Unknown, Reason: "Outage"}},
	})
	if diff := cmp.Diff(Status{State: False, Reason: "Several", Message: "a is False; b is False: no"}, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestAllJoinsIdentities(t *testing.T) {
	in := func(id string) judgeInput { return judgeInput{now: Status{State: True, Identity: id}} }
	if got := judgeAll([]judgeInput{in("x"), in(""), in("y")}).Identity; got != "x,y" {
		t.Errorf("identity is %q, want that of all children that have one", got)
	}
}

func TestAnyKeepsTheIdentityOfItsFirstTrueInput(t *testing.T) {
	is := func(state State, identity string) Status { return Status{State: state, Identity: identity} }
	steps := []struct {
		name  string
		child int
		told  Status
		state State
		want  string
	}{
		{"second child becomes true", 1, is(True, "b"), True, "b"},
		{"first child becomes true as well", 0, is(True, "a"), True, "b"},
		{"second child becomes unknown", 1, is(Unknown, ""), True, "b"},
		{"children are both unknown", 0, is(Unknown, ""), Unknown, ""},
		{"first child is true again", 0, is(True, "a"), True, "b"},
		{"second child is true again with another identity", 1, is(True, "b2"), True, "b2"},
		{"second child becomes false", 1, is(False, ""), True, "a"},
		{"second child is true for the third time", 1, is(True, "b3"), True, "a"},
		{"first child becomes false", 0, is(False, ""), True, "b3"},
		{"children are both false", 1, is(False, ""), False, ""},
	}
	judge, inputs := newAnyJudge(), make([]judgeInput, 2)
	for _, s := range steps {
		inputs[s.child].noteReport(s.told)
		if got := judge(inputs); got.State != s.state || got.Identity != s.want {
			t.Errorf("%s: got %s %q, want %s %q", s.name, got.State, got.Identity, s.state, s.want)
		}
	}
}
