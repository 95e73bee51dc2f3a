// SPDX-License-Identifier: Apache-2.0

// Package condition is what conditions are made of: three-valued reports, how several of them become one, and the loops
// that call a function, watch an object, or wait until a report has held for a while.
package condition

import "fmt"

// State is whether a condition holds.
type State int8

// The three states of a condition. Unknown keeps whatever runs.
const (
	Unknown State = iota
	False
	True
)

// String returns "Unknown", "False" or "True".
func (s State) String() string {
	switch s {
	case False:
		return "False"
	case True:
		return "True"
	case Unknown:
		return "Unknown"
	}
	return fmt.Sprintf("State(%d)", int8(s))
}

// MarshalText writes the state as String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is one report of a condition.
type Status struct {
	State State `json:"state"`
	// Reason is a CamelCase word, Message a sentence for people.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Identity names what the condition found. When it changes while the state is True, the group restarts.
	Identity string `json:"identity,omitempty"`
}

func stateFromBool(holds bool) State {
	if holds {
		return True
	}
	return False
}
