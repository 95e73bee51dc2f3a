// SPDX-License-Identifier: Apache-2.0

// Package statemachine is the state machine of a group: one table, and no effects.
package statemachine

// Phase is where a group is.
type Phase string

// The phases of a group.
const (
	Dormant  Phase = "Dormant"
	Starting Phase = "Starting"
	Running  Phase = "Running"
	Draining Phase = "Draining"
	Stuck    Phase = "Stuck"
	Failed   Phase = "Failed"
)

// AllPhases returns all phases.
func AllPhases() []Phase { return []Phase{Dormant, Starting, Running, Draining, Stuck, Failed} }

// Fact is what happened. The first three are the desire, which is applied again after every transition.
type Fact string

// The facts.
const (
	Wanted   Fact = "Wanted"   // the condition holds and this replica may act
	Unwanted Fact = "Unwanted" // it does not hold, or the manager stops
	Changed  Fact = "Changed"  // it holds for another identity than that of the present, or the failed, activation
	Up       Fact = "Up"       // the runnables were started
	Broke    Fact = "Broke"    // a runnable failed while others may still run
	Ended    Fact = "Ended"    // everything has returned
	Erred    Fact = "Erred"    // everything has returned, and an error was the cause
	Overdue  Fact = "Overdue"  // the drain timeout has passed
	Retry    Fact = "Retry"    // the back-off, or the pause of the restart limit, has passed
)

// AllFacts returns all facts.
func AllFacts() []Fact {
	return []Fact{Wanted, Unwanted, Changed, Up, Broke, Ended, Erred, Overdue, Retry}
}

// Action is what a transition does to the one activation of a group.
type Action string

// The actions.
const (
	Stay     Action = ""
	Activate Action = "Activate" // start a new activation
	Cancel   Action = "Cancel"   // ask it to end
	Seal     Action = "Seal"     // close its scope under whatever still runs
	BackOff  Action = "BackOff"  // wait for the next try
	Forgive  Action = "Forgive"  // forget the failure and its back-off
)

type transition struct {
	to Phase
	do Action
}

// transitions is the whole state machine; a fact that is not listed changes nothing. Only Dormant activates, and only
// Ended and Erred lead there from an activation: so there are never two activations.
func transitions() map[Phase]map[Fact]transition {
	return map[Phase]map[Fact]transition{
		Dormant:  {Wanted: {Starting, Activate}},
		Starting: {Up: {Running, Stay}, Unwanted: {Draining, Cancel}, Changed: {Draining, Cancel}, Broke: {Draining, Cancel}, Ended: {Dormant, Stay}, Erred: {Failed, BackOff}},
		Running:  {Unwanted: {Draining, Cancel}, Changed: {Draining, Cancel}, Broke: {Draining, Cancel}, Ended: {Dormant, Stay}, Erred: {Failed, BackOff}},
		Draining: {Overdue: {Stuck, Seal}, Ended: {Dormant, Stay}, Erred: {Failed, BackOff}},
		Stuck:    {Ended: {Dormant, Stay}, Erred: {Failed, BackOff}},
		Failed:   {Retry: {Dormant, Stay}, Unwanted: {Dormant, Forgive}, Changed: {Dormant, Forgive}},
	}
}

// NextPhase returns where a fact leads and what is to be done on the way.
func NextPhase(p Phase, f Fact) (Phase, Action) {
	if m, ok := transitions()[p][f]; ok {
		return m.to, m.do
	}
	return p, Stay
}
