// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/test/env/model"
)

// toyPhase is the phase of a manager's process.
type toyPhase int8

const (
	toyAwaits   toyPhase = iota // The process lists the Leases before the acquisition.
	toyAcquires                 // The process has found no overlap, and acquires its Lease.
	toyLists                    // The process holds its Lease, and lists the others.
	toyStarts                   // The process may act, and starts its controllers.
	toyYields                   // The process must yield, and releases its Lease.
	toyActs                     // The controllers of the process run.
	toyDead                     // The process was killed.
)

// toyManager is a manager with its Lease.
type toyManager struct {
	Phase toyPhase
	// IsHeld, IsMarked and AcquiredAt are the state of the Lease on the API server. AcquiredAt is a time of the
	// manager's clock, which may differ from all other clocks.
	IsHeld, IsMarked bool
	AcquiredAt       int8
}

const (
	toyManagers = 3
	toyTimes    = 3
	toyCrashes  = 2
)

// toyOverlap is the state of the managers, and the number of processes that were killed.
type toyOverlap struct {
	Managers [toyManagers]toyManager
	Crashes  int8
}

// toyScopes are the namespaces of the managers.
type toyScopes [toyManagers][]string

func (scopes toyScopes) contender(s toyOverlap, i int) Contender {
	m := s.Managers[i]
	return Contender{Name: strconv.Itoa(i), Namespaces: scopes[i], AcquiredAt: time.Unix(int64(m.AcquiredAt), 0), Acts: m.IsMarked}
}

func (scopes toyScopes) decide(s toyOverlap, i int) Verdict {
	var held []Contender
	for other, m := range s.Managers {
		if m.IsHeld {
			held = append(held, scopes.contender(s, other))
		}
	}
	verdict, _ := DecideOverlap(scopes.contender(s, i), held)
	return verdict
}

// advance returns the next steps of a process; several if they depend on its clock.
func (scopes toyScopes) advance(s toyOverlap, i int) []model.Move[toyOverlap] {
	name := strconv.Itoa(i)
	to := func(what string, change func(*toyManager)) model.Move[toyOverlap] {
		next := s
		change(&next.Managers[i])
		return model.Move[toyOverlap]{Name: name + " " + what, To: next}
	}
	enter := func(p toyPhase) []model.Move[toyOverlap] {
		return []model.Move[toyOverlap]{to("continues", func(m *toyManager) { m.Phase = p })}
	}
	switch m := s.Managers[i]; m.Phase {
	case toyAwaits:
		if scopes.decide(s, i) == Act {
			return enter(toyAcquires)
		}
	case toyAcquires:
		if m.IsHeld { // A killed process holds the Lease, which has not expired yet.
			return nil
		}
		var moves []model.Move[toyOverlap]
		for at := range int8(toyTimes) {
			moves = append(moves, to(fmt.Sprintf("acquires at %d", at), func(m *toyManager) { *m = toyManager{Phase: toyLists, IsHeld: true, AcquiredAt: at} }))
		}
		return moves
	case toyLists:
		switch scopes.decide(s, i) {
		case Act:
			return enter(toyStarts)
		case Yield:
			return enter(toyYields)
		case Wait:
		}
	case toyStarts:
		return enter(toyActs)
	case toyYields:
		return []model.Move[toyOverlap]{to("releases", func(m *toyManager) { *m = toyManager{} })}
	case toyActs:
		if !m.IsMarked {
			return []model.Move[toyOverlap]{to("renews", func(m *toyManager) { m.IsMarked = true })}
		}
	case toyDead:
		return []model.Move[toyOverlap]{to("restarts", func(m *toyManager) { m.Phase = toyAwaits })}
	}
	return nil
}

// expire returns the end of a Lease whose process was killed. A running process renews its Lease, or exits before the
// Lease expires.
func (scopes toyScopes) expire(s toyOverlap, i int) []model.Move[toyOverlap] {
	m := s.Managers[i]
	if isOrphan := m.IsHeld && (m.Phase == toyDead || m.Phase == toyAwaits || m.Phase == toyAcquires); !isOrphan {
		return nil
	}
	s.Managers[i] = toyManager{Phase: m.Phase}
	return []model.Move[toyOverlap]{{Name: strconv.Itoa(i) + " expires", To: s}}
}

// disturb returns all steps that are possible: of each process, and the events from outside.
func (scopes toyScopes) disturb(s toyOverlap) []model.Move[toyOverlap] {
	var moves []model.Move[toyOverlap]
	for i, m := range s.Managers {
		moves = append(moves, scopes.advance(s, i)...)
		moves = append(moves, scopes.expire(s, i)...)
		if m.Phase != toyDead && s.Crashes < toyCrashes {
			next := s
			next.Managers[i].Phase, next.Crashes = toyDead, s.Crashes+1
			moves = append(moves, model.Move[toyOverlap]{Name: strconv.Itoa(i) + " is killed", To: next})
		}
		if m.Phase == toyActs && s.Crashes < toyCrashes {
			next := s
			next.Managers[i], next.Crashes = toyManager{Phase: toyDead}, s.Crashes+1
			moves = append(moves, model.Move[toyOverlap]{Name: strconv.Itoa(i) + " ends", To: next})
		}
	}
	return moves
}

// step is the first step that is possible.
func (scopes toyScopes) step(s toyOverlap) model.Move[toyOverlap] {
	for i := range s.Managers {
		if moves := append(scopes.expire(s, i), scopes.advance(s, i)...); len(moves) > 0 {
			return moves[0]
		}
	}
	return model.Move[toyOverlap]{Name: "rest", To: s}
}

// rival returns another manager that acts and has a common namespace; -1 if none does.
func (scopes toyScopes) rival(s toyOverlap, i int) int {
	for other, m := range s.Managers {
		if m.Phase == toyActs && scopes.contender(s, i).overlaps(scopes.contender(s, other)) {
			return other
		}
	}
	return -1
}

// TestOverlapModel visits every order of the steps of three managers, with any clocks and with killed processes. Two
// managers with a common namespace never both act. After the last event, each manager acts, or waits for one that does.
func TestOverlapModel(t *testing.T) {
	t.Parallel()
	for name, scopes := range map[string]toyScopes{
		"all managers have all namespaces":                  {},
		"first manager shares namespaces with both others":  {{"a", "b"}, {"a"}, {"b"}},
		"second manager shares namespaces with both others": {{"a"}, nil, {"b"}},
		"third manager shares namespaces with both others":  {{"a"}, {"b"}, {"a", "b"}},
		"two of three managers share a namespace":           {{"a"}, {"a", "b"}, {"c"}},
		"every two managers share a namespace":              {{"a", "b"}, {"b", "c"}, {"c", "a"}},
		"no two managers share a namespace":                 {{"a"}, {"b"}, {"c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			explorer := model.Explore(t, model.Model[toyOverlap]{
				Step: scopes.step, Disturb: scopes.disturb,
				Check: func(s toyOverlap, _ model.Move[toyOverlap]) (wrong []string) {
					for i, m := range s.Managers {
						if other := scopes.rival(s, i); m.Phase == toyActs && other >= 0 {
							wrong = append(wrong, fmt.Sprintf("expected one of %d and %d to act, found both", i, other))
						}
					}
					return wrong
				},
			}, toyOverlap{})
			for _, s := range explorer.States() {
				path := explorer.PathToRest(t, s)
				rest := path[len(path)-1]
				for i, m := range rest.Managers {
					if m.Phase != toyActs && scopes.rival(rest, i) < 0 {
						t.Fatalf("expected %d to act or to wait for one that acts, found %+v:\n%s", i, rest, explorer.FormatPath(path))
					}
				}
			}
			t.Logf("%d states", len(explorer.States()))
		})
	}
}
