// SPDX-License-Identifier: Apache-2.0

package hibernate

import (
	"testing"
)

// atlas holds every world that was ever reached, once, with where an undisturbed step leads from it.
type atlas struct {
	ids    map[world]int
	worlds []world
	steps  []toyStep
	// toRest is how many steps away the last change is, ages aside.
	toRest []int
}

type toyStep struct {
	to   int
	plan Plan
}

const unknownYet = -1

func newAtlas() *atlas { return &atlas{ids: map[world]int{}} }

func (a *atlas) id(w world) int {
	id, known := a.ids[w]
	if !known {
		id = len(a.worlds)
		a.ids[w] = id
		a.worlds = append(a.worlds, w)
		a.steps = append(a.steps, toyStep{to: unknownYet})
		a.toRest = append(a.toRest, unknownYet)
	}
	return id
}

// next takes an undisturbed step.
func (a *atlas) next(id int) toyStep {
	if a.steps[id].to == unknownYet {
		to, p := a.worlds[id].step(undisturbed)
		a.steps[id] = toyStep{a.id(to), p}
	}
	return a.steps[id]
}

// path is the way from a world to where nothing changes any more.
func (a *atlas) path(t *testing.T, id int) []int {
	t.Helper()
	const tooFar = 200
	path := []int{id}
	for range tooFar {
		to := a.next(id).to
		if to == id {
			return path
		}
		id = to
		path = append(path, id)
	}
	t.Fatalf("expected to come to rest within %d steps:\n%s", tooFar, a.story(path[:20]))
	return nil
}

// rest is the world in which the path from this one ends, and how many steps away the last change is.
func (a *atlas) rest(t *testing.T, id int) int {
	t.Helper()
	if a.toRest[id] != unknownYet {
		return a.toRest[id]
	}
	path := a.path(t, id)
	for i := len(path) - 1; i >= 0; i-- {
		at, to := path[i], a.next(path[i]).to
		switch {
		case at == to:
			a.toRest[at] = 0
		case a.toRest[to] > 0 || a.worlds[at].timeless() != a.worlds[to].timeless():
			a.toRest[at] = a.toRest[to] + 1
		default:
			a.toRest[at] = 0
		}
	}
	return a.toRest[id]
}
