// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// counter is a world that counts down to zero, and whose value a user may raise twice.
type counter struct{ value, raised int }

func countingDown() Model[counter] {
	return Model[counter]{
		Step: func(c counter) Move[counter] {
			if c.value == 0 {
				return Move[counter]{Name: "rest", To: c}
			}
			return Move[counter]{Name: "count", To: counter{c.value - 1, c.raised}}
		},
		Disturb: func(c counter) []Move[counter] {
			if c.raised == 2 {
				return nil
			}
			return []Move[counter]{{Name: "raise", To: counter{c.value + 2, c.raised + 1}}}
		},
	}
}

func TestExploreVisitsEveryStateOnce(t *testing.T) {
	e := Explore(t, countingDown(), counter{value: 1})
	states := e.States()
	// Values 0 and 1 before the first raise, 0 to 3 after one raise, and 0 to 5 after two raises.
	if want := 2 + 4 + 6; len(states) != want {
		t.Errorf("expected %d states, found %d: %v", want, len(states), states)
	}
	if steps := e.Steps(); steps["rest"] != 3 || steps["count"] != 9 {
		t.Errorf("expected 3 states at rest and 9 that count, found %v", steps)
	}
	if steps := e.StepsToRest(t, counter{value: 5, raised: 2}); steps != 5 {
		t.Errorf("expected 5 steps to rest, found %d", steps)
	}
}

func TestDisturbReturnsNewStates(t *testing.T) {
	m := countingDown()
	raise := m.Disturb
	m.Disturb = nil
	e := Explore(t, m, counter{value: 1})
	found := e.Disturb(t, e.States(), raise)
	want := []counter{{3, 1}, {2, 1}, {1, 1}, {0, 1}}
	if !slices.Equal(found, want) {
		t.Errorf("expected %v, found %v", want, found)
	}
}

func TestFailuresShowThePathFromTheStart(t *testing.T) {
	m := countingDown()
	m.Check = func(c counter, _ Move[counter]) []string {
		if c.value > 3 {
			return []string{"higher than three"}
		}
		return nil
	}
	recorder := &recorder{TB: t}
	e := Explore(recorder, m, counter{value: 1})
	if len(recorder.failures) == 0 || !strings.Contains(recorder.failures[0], "higher than three") {
		t.Fatalf("expected a failure of what is higher than three, found %q", recorder.failures)
	}
	want := "  start: {value:1 raised:0}\n  raise: {value:3 raised:1}\n"
	if path := e.PathTo(counter{value: 3, raised: 1}); path != want {
		t.Errorf("expected the path\n%s, found\n%s", want, path)
	}
}

// recorder records failures instead of failing the test.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
