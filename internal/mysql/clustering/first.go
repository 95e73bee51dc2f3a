// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"time"
)

// The first primary, what it starts with, and plans that only wait.

// choice finds the first primary: the one that serves already, or else one that has everything. It is made once, with
// everybody present, because an instance that is absent may hold more.
func (v *view) choice() (int, bool) {
	if v.p != NoInstance || v.count(func(i int) bool { return v.at(i).Reachable }) < v.n {
		return NoInstance, false
	}
	for _, better := range []func(int) bool{v.serves, func(i int) bool { return v.writable(i) && v.complete(i) }} {
		if i, ok := v.best(better); ok {
			return i, v.count(better) == 1
		}
	}
	if v.count(v.writable) > 0 {
		return NoInstance, false
	}
	whole := func(i int) bool { return v.complete(i) && !v.at(i).Stopped }
	if i, ok := v.best(func(i int) bool { return whole(i) && v.at(i).Pod.Role == RolePrimary }); ok {
		return i, true
	}
	return v.best(whole)
}

// serves: it is written to, and enough others acknowledge that.
func (v *view) serves(i int) bool {
	s := v.at(i)
	return v.writable(i) && (v.need() == 0 || s.SemiSync.Source && s.SemiSync.WaitFor >= v.need() && len(s.Connected) >= v.need())
}

// pretender: without a primary, it is written to, does not serve, and lacks what others have. It is closed before a choice.
func pretender(v *view, i int) bool {
	return v.p == NoInstance && v.writable(i) && v.free(i) && !v.serves(i) && !v.complete(i)
}

// complete: nobody has anything that it has not. Of one that is written to, others may have what it is about to commit.
func (v *view) complete(i int) bool {
	for j := range v.n {
		more := v.held[j].Subtract(v.held[i])
		if v.writable(i) {
			more = more.NotNumberedBy(v.at(i).UUID)
		}
		if !more.IsEmpty() {
			return false
		}
	}
	return true
}

// undecided says why no first primary is chosen.
func (v *view) undecided() string {
	for i, s := range v.servers {
		if !s.Reachable {
			return fmt.Sprintf("the first primary is chosen once every instance answers; instance %d does not", i)
		}
	}
	if v.count(v.writable) > 0 {
		return "no primary: instances can be written to that cannot be it, or several; make all but one of them read-only"
	}
	return "no primary: no instance has everything that the others have; compare their GTID sets and clone anew the ones that are wrong"
}

func chooseFirst(_ *view, i int) Plan {
	return Plan{
		Do:     PromoteInStatus{Index: i, From: NoInstance},
		Why:    fmt.Sprintf("instance %d becomes the first primary", i),
		Events: []Event{{Reason: "PrimaryChosen", Note: fmt.Sprintf("Instance %d is the first primary", i)}},
	}
}

func waitFirst(v *view, _ int) Plan { return Plan{Why: v.undecided(), After: degradedInterval} }

// copied: the primary has what it should start with.
func (v *view) copied() bool {
	s := v.at(v.p)
	return v.Source.open() && s.Reachable && !s.Pending && !s.Executed.IsEmpty() && (s.Clone == Cloned || s.Clone == NotCloned)
}

// copies: the primary is empty, and nothing is being done about it.
func (v *view) copies() bool {
	return v.Source.open() && !v.StopAsked && v.free(v.p) && v.held[v.p].IsEmpty() && v.at(v.p).Clone != Cloning
}

func noteCopied(v *view, _ int) Plan {
	return Plan{
		SourceDone: true, After: immediately, Why: "the copy from outside is complete",
		Events: []Event{{Reason: "InitCloned", Note: fmt.Sprintf("Instance %d is a copy of the source outside", v.p)}},
	}
}

func copyOutside(v *view, i int) Plan {
	p := Plan{Do: CloneFrom{Index: i, Donor: NoInstance}, Why: fmt.Sprintf("instance %d becomes a copy of the source outside", i)}
	if v.at(i).Clone == CloneFailed {
		p.Events = []Event{{Warning: true, Reason: "InitCloneFailed", Note: "The copy of the source outside failed and is begun anew"}}
	}
	return p
}

func suspect(_ *view, i int) Plan {
	return Plan{Why: fmt.Sprintf("the primary, instance %d, does not answer", i), After: suspicionInterval}
}

// settled: nothing is to be done by clustering.
func settled(v *view, _ int) Plan {
	p := Plan{Why: "nothing is to be done", After: healthyInterval}
	if v.state() != StateHealthy || v.switchAsked() {
		p.After = degradedInterval
	}
	return p
}

func waiting(why string, after time.Duration) func(*view, int) Plan {
	return func(*view, int) Plan { return Plan{Why: why, After: after} }
}
