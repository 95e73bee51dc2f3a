// SPDX-License-Identifier: Apache-2.0

package conditional

// Phase is the phase of a group.
type Phase string

// The phases of a group.
const (
	Dormant  Phase = "Dormant"  // no part of the group exists
	Starting Phase = "Starting" // setup runs, and its informers sync
	Running  Phase = "Running"  // setup is done and every runnable has been started; controllers sync their own watches
	Draining Phase = "Draining" // stop requested; runnables are returning
	Stuck    Phase = "Stuck"    // a runnable has not returned within the drain timeout; nothing starts before it does
	Failed   Phase = "Failed"   // setup or a runnable failed; the next try waits for the back-off
)

func allPhases() []Phase { return []Phase{Dormant, Starting, Running, Draining, Stuck, Failed} }

// groupFact is an event in the life of a group. The first three express the desired state, which is applied again
// after every transition.
type groupFact string

// The facts.
const (
	factWanted   groupFact = "Wanted"   // the condition holds and this replica may act
	factUnwanted groupFact = "Unwanted" // it does not hold, or the manager stops
	factChanged  groupFact = "Changed"  // it holds for another identity than that of the current, or the failed, activation
	factUp       groupFact = "Up"       // the runnables were started
	factBroke    groupFact = "Broke"    // a runnable failed while others may still run
	factEnded    groupFact = "Ended"    // every runnable has returned
	factErred    groupFact = "Erred"    // every runnable has returned, because of an error
	factOverdue  groupFact = "Overdue"  // the drain timeout has passed
	factRetry    groupFact = "Retry"    // the back-off, or the pause of the restart limit, has passed
)

// groupAction is the effect of a transition on the one activation of a group.
type groupAction string

// The actions.
const (
	actionStay     groupAction = ""
	actionActivate groupAction = "Activate" // start a new activation
	actionCancel   groupAction = "Cancel"   // ask the activation to end
	actionSeal     groupAction = "Seal"     // close its scope, even while runnables still run
	actionBackOff  groupAction = "BackOff"  // wait for the next try
	actionForgive  groupAction = "Forgive"  // forget the failure and its back-off
)

type transition struct {
	to Phase
	do groupAction
}

// transitions is the whole state machine; a fact that is not listed changes nothing.
//
// Invariant: a group never has two activations. Only Dormant activates, and only Ended and Erred, which mean that
// everything has returned, leave the phases with an activation. TestEveryHistory checks this for every reachable state.
func transitions() map[Phase]map[groupFact]transition {
	return map[Phase]map[groupFact]transition{
		Dormant:  {factWanted: {Starting, actionActivate}},
		Starting: {factUp: {Running, actionStay}, factUnwanted: {Draining, actionCancel}, factChanged: {Draining, actionCancel}, factBroke: {Draining, actionCancel}, factEnded: {Dormant, actionStay}, factErred: {Failed, actionBackOff}},
		Running:  {factUnwanted: {Draining, actionCancel}, factChanged: {Draining, actionCancel}, factBroke: {Draining, actionCancel}, factEnded: {Dormant, actionStay}, factErred: {Failed, actionBackOff}},
		Draining: {factOverdue: {Stuck, actionSeal}, factEnded: {Dormant, actionStay}, factErred: {Failed, actionBackOff}},
		Stuck:    {factEnded: {Dormant, actionStay}, factErred: {Failed, actionBackOff}},
		Failed:   {factRetry: {Dormant, actionStay}, factUnwanted: {Dormant, actionForgive}, factChanged: {Dormant, actionForgive}},
	}
}

func nextPhase(p Phase, f groupFact) (Phase, groupAction) {
	if m, ok := transitions()[p][f]; ok {
		return m.to, m.do
	}
	return p, actionStay
}
