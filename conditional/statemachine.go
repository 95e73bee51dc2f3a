// SPDX-License-Identifier: Apache-2.0

package conditional

// Phase is where a group is.
type Phase string

// The phases of a group.
const (
	Dormant  Phase = "Dormant"  // nothing of the group exists
	Starting Phase = "Starting" // setup runs, the informers that it asked for sync
	Running  Phase = "Running"  // setup is done and every runnable has been started; controllers sync what they watch by themselves
	Draining Phase = "Draining" // stopped, runnables are returning
	Stuck    Phase = "Stuck"    // a runnable has not returned within the drain timeout; nothing starts before it does
	Failed   Phase = "Failed"   // setup or a runnable failed; the next try waits for the back-off
)

func allPhases() []Phase { return []Phase{Dormant, Starting, Running, Draining, Stuck, Failed} }

// groupFact is what happened. The first three are the desire, which is applied again after every transition.
type groupFact string

// The facts.
const (
	factWanted   groupFact = "Wanted"   // the condition holds and this replica may act
	factUnwanted groupFact = "Unwanted" // it does not hold, or the manager stops
	factChanged  groupFact = "Changed"  // it holds for another identity than that of the present, or the failed, activation
	factUp       groupFact = "Up"       // the runnables were started
	factBroke    groupFact = "Broke"    // a runnable failed while others may still run
	factEnded    groupFact = "Ended"    // everything has returned
	factErred    groupFact = "Erred"    // everything has returned, and an error was the cause
	factOverdue  groupFact = "Overdue"  // the drain timeout has passed
	factRetry    groupFact = "Retry"    // the back-off, or the pause of the restart limit, has passed
)

// groupAction is what a transition does to the one activation of a group.
type groupAction string

// The actions.
const (
	actionStay     groupAction = ""
	actionActivate groupAction = "Activate" // start a new activation
	actionCancel   groupAction = "Cancel"   // ask it to end
	actionSeal     groupAction = "Seal"     // close its scope under whatever still runs
	actionBackOff  groupAction = "BackOff"  // wait for the next try
	actionForgive  groupAction = "Forgive"  // forget the failure and its back-off
)

type transition struct {
	to Phase
	do groupAction
}

// transitions is the whole state machine; a fact that is not listed changes nothing. Only Dormant activates, and only
// Ended and Erred lead there from an activation: so there are never two activations.
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
