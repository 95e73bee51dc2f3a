// SPDX-License-Identifier: Apache-2.0

// Package model explores the states of a toy world: a small, comparable value with everything that a decision
// depends on. A test defines the initial states, the effect of one undisturbed pass on a state, the other possible
// events, and a check of each state. Every state is visited once, breadth first, so that the path to a failure is
// short.
package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Move is a transition from one state to another.
type Move[S comparable] struct {
	// Name is the event, such as the name of the rule that was followed.
	Name string
	To   S
}

// Model describes a toy world.
type Model[S comparable] struct {
	// Step is one undisturbed pass of the controller and of the simulated environment. A state that Step does not
	// change is at rest.
	Step func(S) Move[S]
	// Disturb returns the other events that are possible in a state. It is nil if there are no other events, or if the
	// test calls Explorer.Disturb instead. If an event may happen only a limited number of times, the state must count
	// it.
	Disturb func(S) []Move[S]
	// Check returns the errors of a state or of the step that follows it.
	Check func(from S, step Move[S]) []string
	// IsChange reports whether StepsToRest counts a step that no change follows, such as one in which only time passes.
	// If IsChange is nil, every step counts.
	IsChange func(from, to S) bool
	// FormatState formats a state for the reader of a failure; nil means %+v.
	FormatState func(S) string
}

const (
	// maxFailures is the maximum number of failures of an exploration that are reported.
	maxFailures = 5
	// maxPath is the number of steps above which a path to rest counts as endless.
	maxPath = 200
	unknown = -1
)

// Explorer stores every visited state, how it was first reached, and where its undisturbed step leads.
type Explorer[S comparable] struct {
	model    Model[S]
	ids      map[S]int
	nodes    []node[S]
	failures int
}

type node[S comparable] struct {
	state S
	// from is the node from which this node was first reached, and by is the name of the move. For an initial state,
	// from is unknown.
	from int
	by   string
	// next is the node to which the undisturbed step leads, and step is the name of the step. Until the step is
	// computed, next is unknown.
	next        int
	step        string
	stepsToRest int
}

// Explore visits every state that is reachable from the initial states.
func Explore[S comparable](t testing.TB, model Model[S], starts ...S) *Explorer[S] {
	t.Helper()
	e := &Explorer[S]{model: model, ids: map[S]int{}}
	e.Visit(t, starts...)
	return e
}

// Visit visits every state that is reachable from additional initial states, and returns the states that were not
// visited before.
func (e *Explorer[S]) Visit(t testing.TB, starts ...S) []S {
	t.Helper()
	first := len(e.nodes)
	for _, s := range starts {
		e.addState(s, unknown, "start")
	}
	return e.visitFrom(t, first)
}

// Disturb applies each move that disturb returns once in each of the states, visits the states that follow,
// and returns those that were not visited before.
func (e *Explorer[S]) Disturb(t testing.TB, states []S, disturb func(S) []Move[S]) []S {
	t.Helper()
	first := len(e.nodes)
	for _, s := range states {
		id := e.addState(s, unknown, "start")
		for _, move := range disturb(s) {
			e.addState(move.To, id, move.Name)
		}
	}
	return e.visitFrom(t, first)
}

func (e *Explorer[S]) visitFrom(t testing.TB, first int) []S {
	t.Helper()
	var visited []S
	for id := first; id < len(e.nodes) && e.failures < maxFailures; id++ {
		state := e.nodes[id].state
		visited = append(visited, state)
		// The step may add a node at the end, which this loop then visits too.
		step := e.stepFrom(id)
		if e.model.Check != nil {
			if wrong := e.model.Check(state, step); len(wrong) > 0 {
				e.failures++
				t.Errorf("%s\n%s  then %s: %s", strings.Join(wrong, "\n"), e.PathTo(state), step.Name, e.formatState(step.To))
			}
		}
		if e.model.Disturb == nil {
			continue
		}
		for _, move := range e.model.Disturb(state) {
			e.addState(move.To, id, move.Name)
		}
	}
	return visited
}

func (e *Explorer[S]) addState(s S, from int, by string) int {
	id, known := e.ids[s]
	if !known {
		id = len(e.nodes)
		e.ids[s] = id
		e.nodes = append(e.nodes, node[S]{state: s, from: from, by: by, next: unknown, stepsToRest: unknown})
	}
	return id
}

// stepFrom returns the undisturbed step of a state. It is computed only once, because decisions are the expensive
// part of a model.
func (e *Explorer[S]) stepFrom(id int) Move[S] {
	if e.nodes[id].next == unknown {
		move := e.model.Step(e.nodes[id].state)
		next := e.addState(move.To, id, move.Name)
		e.nodes[id].next, e.nodes[id].step = next, move.Name
	}
	n := e.nodes[id]
	return Move[S]{Name: n.step, To: e.nodes[n.next].state}
}

// States returns every visited state, in the order in which they were first reached.
func (e *Explorer[S]) States() []S {
	states := make([]S, len(e.nodes))
	for id, n := range e.nodes {
		states[id] = n.state
	}
	return states
}

// Steps returns the number of steps with each name, such as how often each rule matched.
func (e *Explorer[S]) Steps() map[string]int {
	counts := map[string]int{}
	for _, n := range e.nodes {
		if n.next != unknown {
			counts[n.step]++
		}
	}
	return counts
}

// NextMove returns the undisturbed step from a state.
func (e *Explorer[S]) NextMove(s S) Move[S] { return e.stepFrom(e.addState(s, unknown, "start")) }

// IsAtRest reports whether an undisturbed step leaves a state unchanged.
func (e *Explorer[S]) IsAtRest(s S) bool { return e.NextMove(s).To == s }

// PathToRest returns the undisturbed path from a state to the state at rest where it ends, both included. The test
// fails if the path does not end.
func (e *Explorer[S]) PathToRest(t testing.TB, s S) []S {
	t.Helper()
	path := []S{s}
	for !e.IsAtRest(s) {
		s = e.NextMove(s).To
		path = append(path, s)
		if len(path) > maxPath {
			t.Fatalf("never comes to rest:\n%s", e.FormatPath(path[:maxPath/4]))
		}
	}
	return path
}

// StepsToRest returns the number of steps from a state until the last change on its path to rest.
func (e *Explorer[S]) StepsToRest(t testing.TB, s S) int {
	t.Helper()
	first := e.addState(s, unknown, "start")
	if e.nodes[first].stepsToRest != unknown {
		return e.nodes[first].stepsToRest
	}
	// Go backwards, so that every state on the path gets its number.
	path := e.PathToRest(t, s)
	steps := 0
	for i, state := range slices.Backward(path) {
		id := e.ids[state]
		if i+1 < len(path) && (steps > 0 || e.model.IsChange == nil || e.model.IsChange(state, path[i+1])) {
			steps++
		}
		e.nodes[id].stepsToRest = steps
	}
	return steps
}

// PathTo formats the path on which a state was first reached.
func (e *Explorer[S]) PathTo(s S) string {
	text := ""
	for id := e.addState(s, unknown, "start"); id != unknown; id = e.nodes[id].from {
		n := e.nodes[id]
		text = fmt.Sprintf("  %s: %s\n", n.by, e.formatState(n.state)) + text
	}
	return text
}

// FormatPath formats states with the steps between them.
func (e *Explorer[S]) FormatPath(path []S) string {
	var text strings.Builder
	for _, s := range path {
		fmt.Fprintf(&text, "  %s\n    %s\n", e.formatState(s), e.NextMove(s).Name)
	}
	return text.String()
}

func (e *Explorer[S]) formatState(s S) string {
	if e.model.FormatState == nil {
		return fmt.Sprintf("%+v", s)
	}
	return e.model.FormatState(s)
}
