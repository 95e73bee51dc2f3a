// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// atlas holds every world that was reached, once, with where an undisturbed step leads from it. Worlds are named by
// their place in it.
type atlas struct {
	places map[modelState]int
	worlds []modelState
	steps  []toyStep
	// toRest is how many steps ahead the last change is, ages aside.
	toRest []int
}

type toyStep struct {
	to   int
	rule string
	do   Action
}

const notYet = -1

func newAtlas() *atlas { return &atlas{places: map[modelState]int{}} }

func (a *atlas) place(w modelState) int {
	id, known := a.places[w]
	if !known {
		id = len(a.worlds)
		a.places[w] = id
		a.worlds = append(a.worlds, w)
		a.steps = append(a.steps, toyStep{to: notYet})
		a.toRest = append(a.toRest, notYet)
	}
	return id
}

// all is the places of worlds.
func (a *atlas) all(worlds []modelState) []int {
	var ids []int
	for _, w := range worlds {
		ids = append(ids, a.place(w))
	}
	return ids
}

// next is where an undisturbed step leads.
func (a *atlas) next(id int) int {
	if a.steps[id].to == notYet {
		w, p := a.worlds[id].stepAndTick(undisturbed)
		to := a.place(w)
		a.steps[id] = toyStep{to, p.Rule, p.Do}
	}
	return a.steps[id].to
}

func (a *atlas) rests(id int) bool { return a.next(id) == id }

// path is the undisturbed way from a world to the one that leads to itself.
func (a *atlas) path(t *testing.T, id int) []int {
	t.Helper()
	const tooFar = 100
	path := []int{id}
	for !a.rests(id) {
		id = a.next(id)
		path = append(path, id)
		if len(path) > tooFar {
			t.Fatalf("does not come to rest:\n%s", a.story(path[:tooFar/2]))
		}
	}
	for _, at := range slices.Backward(path) {
		to := a.next(at)
		a.toRest[at] = 0
		if a.toRest[to] > 0 || a.worlds[at].withoutAges() != a.worlds[to].withoutAges() {
			a.toRest[at] = a.toRest[to] + 1
		}
	}
	return path
}

// explore follows the undisturbed ways from the given worlds and returns every world on them.
func (a *atlas) explore(t *testing.T, from ...int) []int {
	t.Helper()
	seen := map[int]bool{}
	for _, id := range from {
		if !seen[id] {
			for _, on := range a.path(t, id) {
				seen[on] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// disturb applies every disturbance to every given world in which something happens or nothing does any more,
// and explores what comes of it.
func (a *atlas) disturb(t *testing.T, worlds []int, by []disturbance) []int {
	t.Helper()
	var from []int
	for _, id := range worlds {
		if a.toRest[id] > 0 || a.rests(id) {
			for _, d := range by {
				from = append(from, a.place(a.worlds[id].applyDisturbance(d)))
			}
		}
	}
	return a.explore(t, from...)
}

// story is a way in words, for the reader of a failure.
func (a *atlas) story(path []int) string {
	var b strings.Builder
	for _, id := range path {
		w := a.worlds[id]
		fmt.Fprintf(&b, "  want %s; machines %v, API %d, nodes %v; record %+v\n    told %s/%s, now %q\n",
			w.desired, w.machines, w.apiPasses, w.nodes, w.record, w.reported.hibernating.Reason, w.reported.ready.Reason, a.steps[id].rule)
	}
	return b.String()
}
