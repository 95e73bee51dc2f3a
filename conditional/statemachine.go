// SPDX-License-Identifier: Apache-2.0

package conditional

// Phase is the phase of a group.
type Phase string

// These are the phases of a group.
const (
	Dormant  Phase = "Dormant"  // Dormant means that the group has no scope and no runnables
	Starting Phase = "Starting" // Starting means that setup runs, and its informers sync
	Running  Phase = "Running"  // Running means that setup is done and every runnable has been started
	Draining Phase = "Draining" // Draining means that the group is stopping and runnables are returning
	Stuck    Phase = "Stuck"    // Stuck means that a runnable exceeds the drain timeout; the next start waits for it
	Failed   Phase = "Failed"   // Failed means that setup or a runnable failed; the next start waits for the back-off
)

func allPhases() []Phase { return []Phase{Dormant, Starting, Running, Draining, Stuck, Failed} }

// groupFact is an input of the state machine. The first three facts express the desired state. One of them is applied
// after every transition.
type groupFact string

// These are the facts that the state machine reacts to.
const (
	factWanted   groupFact = "Wanted"   // factWanted means that the condition is True and this replica may start groups
	factUnwanted groupFact = "Unwanted" // factUnwanted means that the condition is not True, Stop was called, or this replica may run no group
	factChanged  groupFact = "Changed"  // factChanged means that the condition is True with another identity, or Restart was called
	factUp       groupFact = "Up"       // factUp means that all runnables have been started
	factBroke    groupFact = "Broke"    // factBroke means that a runnable failed while others may still run
	factEnded    groupFact = "Ended"    // factEnded means that every runnable has returned
	factErred    groupFact = "Erred"    // factErred means that every runnable has returned, because of an error
	factOverdue  groupFact = "Overdue"  // factOverdue means that the drain timeout has passed
	factRetry    groupFact = "Retry"    // factRetry means that the back-off, or the pause of the restart limit, has passed
)

// groupAction is the effect of a transition on the group's activation.
type groupAction string

// These are the actions of the state machine.
const (
	actionStay     groupAction = ""
	actionActivate groupAction = "Activate" // actionActivate starts a new activation
	actionCancel   groupAction = "Cancel"   // actionCancel asks the activation to end
	actionSeal     groupAction = "Seal"     // actionSeal closes the activation's scope, even while runnables still run
	actionBackOff  groupAction = "BackOff"  // actionBackOff sets the timer for the next start
	actionForgive  groupAction = "Forgive"  // actionForgive resets the back-off
)

type transition struct {
	to Phase
	do groupAction
}

// transitions is the complete state machine. A fact that is not listed for a phase changes nothing.
//
// Invariant: a group never has two activations. Only the phase Dormant starts an activation. The phases with an
// activation lead to Dormant or Failed only by Ended and Erred, which mean that every runnable has returned.
// TestEveryHistory checks this for every reachable state.
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
