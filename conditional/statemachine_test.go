// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func allFacts() []groupFact {
	return []groupFact{factWanted, factUnwanted, factChanged, factUp, factBroke, factEnded, factErred, factOverdue, factRetry}
}

// TestNextIsTotal lists the transition for every phase and fact. "." means that the fact changes nothing.
func TestNextIsTotal(t *testing.T) {
	const want = `
         Wanted            Unwanted         Changed          Up      Broke           Ended   Erred          Overdue    Retry
Dormant  Starting/Activate .                .                .       .               .       .              .          .
Starting .                 Draining/Cancel  Draining/Cancel  Running Draining/Cancel Dormant Failed/BackOff .          .
Running  .                 Draining/Cancel  Draining/Cancel  .       Draining/Cancel Dormant Failed/BackOff .          .
Draining .                 .                .                .       .               Dormant Failed/BackOff Stuck/Seal .
Stuck    .                 .                .                .       .               Dormant Failed/BackOff .          .
Failed   .                 Dormant/Forgive  Dormant/Forgive  .       .               .       .              .          Dormant
`
	rows := [][]string{nil}
	for _, f := range allFacts() {
		rows[0] = append(rows[0], string(f))
	}
	for _, p := range allPhases() {
		row := []string{string(p)}
		for _, f := range allFacts() {
			row = append(row, describe(p, f))
		}
		rows = append(rows, row)
	}
	var wanted [][]string
	for line := range strings.Lines(strings.TrimPrefix(want, "\n")) {
		wanted = append(wanted, strings.Fields(line))
	}
	if diff := cmp.Diff(wanted, rows); diff != "" {
		t.Errorf("state machine (-want +got):\n%s", diff)
	}
}

func describe(p Phase, f groupFact) string {
	to, do := nextPhase(p, f)
	switch {
	case to == p && do == actionStay:
		return "."
	case do == actionStay:
		return string(to)
	}
	return fmt.Sprintf("%s/%s", to, do)
}

// modelState models a group: its phase, the number of its activations (lives), and whether the current activation was
// asked to end and its scope was closed (sealed).
type modelState struct {
	phase  Phase
	lives  int
	asked  bool
	sealed bool
}

// possible reports whether a fact can happen in this state.
func (w modelState) possible(f groupFact) bool {
	switch f {
	case factWanted, factUnwanted, factChanged:
		return true
	case factUp, factBroke:
		return w.lives == 1
	case factEnded, factErred:
		return w.lives == 1
	case factOverdue:
		return w.phase == Draining
	case factRetry:
		return w.phase == Failed || w.phase == Dormant
	}
	return false
}

func (w modelState) after(f groupFact) modelState {
	if f == factEnded || f == factErred {
		w.lives, w.asked, w.sealed = 0, false, false
	}
	var do groupAction
	w.phase, do = nextPhase(w.phase, f)
	switch do {
	case actionActivate:
		w.lives++
	case actionCancel:
		w.asked = true
	case actionSeal:
		w.sealed = true
	case actionStay, actionBackOff, actionForgive:
	}
	return w
}

// TestEveryHistory visits all reachable states of the model.
func TestEveryHistory(t *testing.T) {
	seen := map[modelState]bool{}
	open := []modelState{{phase: Dormant}}
	for len(open) > 0 {
		w := open[0]
		open = open[1:]
		if seen[w] {
			continue
		}
		seen[w] = true
		w.check(t)
		for _, f := range allFacts() {
			if w.possible(f) {
				open = append(open, w.after(f))
			}
		}
	}
	if len(seen) != len(allPhases()) {
		t.Errorf("%d worlds can be reached, want one per phase: %v", len(seen), seen)
	}
}

func (w modelState) check(t *testing.T) {
	t.Helper()
	alive := w.phase != Dormant && w.phase != Failed
	if (w.lives == 1) != alive || w.lives > 1 {
		t.Errorf("%d lives in %+v", w.lives, w)
	}
	if w.asked != (w.phase == Draining || w.phase == Stuck) {
		t.Errorf("asked to end, or not, wrongly in %+v", w)
	}
	if w.sealed != (w.phase == Stuck) {
		t.Errorf("sealed, or not, wrongly in %+v", w)
	}
	for _, way := range [][]groupFact{{factUnwanted, factEnded, factUnwanted}, {factUnwanted, factOverdue, factEnded}, {factUnwanted, factErred, factUnwanted}} {
		end := w
		for _, f := range way {
			if end.possible(f) {
				end = end.after(f)
			}
		}
		if end.phase != Dormant {
			t.Errorf("%+v does not come to rest by %v but is %s", w, way, end.phase)
		}
	}
}
