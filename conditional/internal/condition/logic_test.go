// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
