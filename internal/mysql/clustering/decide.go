// SPDX-License-Identifier: Apache-2.0

// Package clustering decides what happens to a MySQL cluster: who is its primary, who follows it, and what a stop of
// clustering has to finish first. It is pure: Decide turns what was Observed into a Plan, and the order of its rules is
// the documentation. What is stored: the index of the primary in the status, which every act follows from together with
// the spec and the observation, and the record of a stop that was reached. Memory is only clocks, and may be lost.
package clustering

import "fmt"

// rule is one line of the decision. It finds the instance that it is about, and plans.
type rule struct {
	name string
	find func(*view) (int, bool)
	then func(*view, int) Plan
}

// rules returns the whole decision in its order: the first that finds something wins, and the last always does.
// Above the line "quiescing" stands what a stop finishes, below it what a stop leaves alone.
func rules() []rule {
	return []rule{
		{"stopped", when((*view).stopped), stayStopped},
		{"started", when((*view).resumed), resume},
		{"stop reached", when((*view).reached), stop},
		{"offline", when(func(v *view) bool { return v.Offline }), waiting("no instance is wanted", healthyInterval)},
		{"restoring", when(func(v *view) bool { return v.Restore.open() }), waiting("the restore is under way", degradedInterval)},
		{"choose the first primary", (*view).choice, chooseFirst},
		{"a pretender", some(pretender), act("lacks what others have and is made read-only", func(i int) Action { return SetReadOnly{Index: i} })},
		{"no primary", when(func(v *view) bool { return v.p == NoInstance }), waitFirst},
		{"copied from outside", when((*view).copied), noteCopied},
		{"copy from outside", when((*view).copies), copyOutside},
		{"copying from outside", when(func(v *view) bool { return v.Source.open() }), waiting("the copy from outside is under way", degradedInterval)},

		{"a second writable instance", some(intruder), act("is not the primary and is made read-only", func(i int) Action { return SetReadOnly{Index: i} })},
		{"hung clients of a replica", some(hung), act("has clients that hang; they are cut off", func(i int) Action { return KillConnections{Index: i} })},
		{"isolate an errant replica", some(infectious), act("is errant and is isolated", func(i int) Action { return StopIO{Indexes: []int{i}} })},
		{"hide an errant replica", some(outcast), act("is errant and loses its label", func(i int) Action { return SetRole{Index: i, Role: RoleNone} })},

		{"fence for a failover", when((*view).needsFence), fence},
		{"fail over", (*view).electable, electRunner},
		{"take a fence back", some(releasable), act("was fenced for a failover that cannot go on", func(i int) Action { return StartIO{Index: i} })},
		{"the top runner does not apply", (*view).idleRunner, act("has to apply its relay log", func(i int) Action { return RestartSQL{Index: i} })},
		{"failed", when((*view).failed), waitFailover},
		{"the primary does not answer", when(func(v *view) bool { return !v.at(v.p).Reachable }), suspect},

		{"cancel a hanging statement", when((*view).cancels), act("runs a statement that is no longer wanted", func(i int) Action { return CancelPending{Index: i} })},
		{"cut off the clients", when((*view).hesitates), act("does not become read-only; its clients are cut off", func(i int) Action { return KillConnections{Index: i} })},
		{"a statement runs in the primary", when(func(v *view) bool { return v.at(v.p).Pending }), waiting("a statement runs in the primary", operationInterval)},
		{"begin a switchover", when((*view).beginSwitch), demote},
		{"switch over", (*view).heir, electHeir},
		{"the heir catches up", when((*view).awaitsHeir), waiting("the primary is read-only until a replica has everything", operationInterval)},

		{"a second label of the primary", some(usurper), act("is not the primary and loses its label", func(i int) Action { return SetRole{Index: i, Role: RoleNone} })},
		{"the primary receives", when((*view).receives), act("is the primary and stops receiving", func(i int) Action { return StopIO{Indexes: []int{i}} })},
		{"the primary does not apply", when(func(v *view) bool { return v.free(v.p) && v.hasBacklog() && v.canApply(v.p) }), act("has to apply its relay log", func(i int) Action { return RestartSQL{Index: i} })},
		{"the primary applies", when((*view).hasBacklog), waitBacklog},
		{"configure the primary", when(func(v *view) bool { return v.free(v.p) && !v.configured() }), configurePrimary},
		{"make the primary writable", when((*view).opens), openPrimary},
		{"label the primary", when((*view).unlabelled), act("is the primary and gets its label", func(i int) Action { return SetRole{Index: i, Role: RolePrimary} })},
		{"a replica receives from another", some(elsewhere), act("stops receiving from another than the primary", func(i int) Action { return StopIO{Indexes: []int{i}} })},
		{"a replica does not apply", some(idle), act("stopped applying without an error", func(i int) Action { return RestartSQL{Index: i} })},
		{"configure a replica", some(unconfigured), configureReplica},
		{"a replica does not receive", some(deaf), act("stopped receiving", func(i int) Action { return StartIO{Index: i} })},

		{"quiescing", when(func(v *view) bool { return v.StopAsked }), waitQuiet},

		{"clone a replica", some(clonable), cloneReplica},
		{"hide a replica that lags", some(outdated), act("is too far behind and loses its label", func(i int) Action { return SetRole{Index: i, Role: RoleNone} })},
		{"label a replica", some(presentable), act("follows and gets its label", func(i int) Action { return SetRole{Index: i, Role: RoleReplica} })},
		{"the demotion is done", some(demoted), act("has stepped down", func(i int) Action { return ClearDemote{Index: i} })},
		{"settled", when(func(*view) bool { return true }), settled},
	}
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	v := newView(o)
	for _, r := range rules() {
		i, found := r.find(v)
		if !found {
			continue
		}
		p := r.then(v, i)
		p.Rule = r.name
		if p.Do == nil {
			p.Do = Nothing{}
		}
		return v.report(p)
	}
	return v.report(Plan{Do: Nothing{}})
}

// when finds the primary, if something holds.
func when(holds func(*view) bool) func(*view) (int, bool) {
	return func(v *view) (int, bool) { return v.p, holds(v) }
}

// some finds the first instance for which something holds.
func some(holds func(*view, int) bool) func(*view) (int, bool) {
	return func(v *view) (int, bool) { return v.first(holds) }
}

// act plans an effect on the instance that was found.
func act(why string, do func(int) Action) func(*view, int) Plan {
	return func(_ *view, i int) Plan { return Plan{Do: do(i), Why: fmt.Sprintf("instance %d %s", i, why)} }
}
