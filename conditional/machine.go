// SPDX-License-Identifier: Apache-2.0

package conditional

// Phase is where a group is.
type Phase string

// The phases of a group.
const (
	Dormant  Phase = "Dormant"  // nothing of the group exists
	Starting Phase = "Starting" // setup runs, the scope's cache starts
	Running  Phase = "Running"  // setup is done and every runnable has been started
	Draining Phase = "Draining" // stopped, runnables are returning
	Stuck    Phase = "Stuck"    // a runnable has not returned within the drain timeout; nothing starts before it does
	Failed   Phase = "Failed"   // setup or a runnable failed; the next try waits for the back-off
)

func phases() []Phase { return []Phase{Dormant, Starting, Running, Draining, Stuck, Failed} }

// fact is what happened. The first three are the desire, which is told again after every move.
type fact string

const (
	wanted   fact = "Wanted"   // the condition holds and this replica may act
	unwanted fact = "Unwanted" // it does not hold, or the manager stops
	changed  fact = "Changed"  // it holds for another identity than the one that lives, or failed
	up       fact = "Up"       // the runnables were started
	broke    fact = "Broke"    // a runnable failed while others may still run
	ended    fact = "Ended"    // everything has returned
	erred    fact = "Erred"    // everything has returned, and an error was the cause
	overdue  fact = "Overdue"  // the drain timeout has passed
	retry    fact = "Retry"    // the back-off has passed
)

func facts() []fact {
	return []fact{wanted, unwanted, changed, up, broke, ended, erred, overdue, retry}
}

// action is what a move does to the one life of a group.
type action string

const (
	stay     action = ""
	activate action = "Activate" // begin a new life
	cancel   action = "Cancel"   // ask it to end
	seal     action = "Seal"     // close its scope under whatever still runs
	backOff  action = "BackOff"  // wait for the next try
	forgive  action = "Forgive"  // forget the failure and its back-off
)

type move struct {
	to Phase
	do action
}

// moves is the whole state machine; a fact that is not listed changes nothing. Only Dormant activates, and only
// Ended and Erred lead there from a life: so there are never two lives.
func moves() map[Phase]map[fact]move {
	return map[Phase]map[fact]move{
		Dormant:  {wanted: {Starting, activate}},
		Starting: {up: {Running, stay}, unwanted: {Draining, cancel}, changed: {Draining, cancel}, broke: {Draining, cancel}, ended: {Dormant, stay}, erred: {Failed, backOff}},
		Running:  {unwanted: {Draining, cancel}, changed: {Draining, cancel}, broke: {Draining, cancel}, ended: {Dormant, stay}, erred: {Failed, backOff}},
		Draining: {overdue: {Stuck, seal}, ended: {Dormant, stay}, erred: {Failed, backOff}},
		Stuck:    {ended: {Dormant, stay}, erred: {Failed, backOff}},
		Failed:   {retry: {Dormant, stay}, unwanted: {Dormant, forgive}, changed: {Dormant, forgive}},
	}
}

// next returns where a fact leads and what is to be done on the way.
func next(p Phase, f fact) (Phase, action) {
	if m, ok := moves()[p][f]; ok {
		return m.to, m.do
	}
	return p, stay
}
