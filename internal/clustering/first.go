// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"time"

	"github.com/torpor-dev/torpor/internal/clustering/gtid"
)

// The first primary, what it starts with, and plans that only wait.

// choice finds the first primary: the one that is written to, or the one that has everything. It is made once, with
// everybody present, because an instance that is absent may hold more.
func (v *view) choice() (int, bool) {
	present := v.count(func(i int) bool { return v.at(i).Reachable })
	open := v.count(v.writable)
	switch {
	case v.p != None, present < v.n, open > 1:
		return None, false
	case open == 1:
		return v.best(v.writable)
	}
	var all gtid.Set
	for _, held := range v.held {
		all = all.Union(held)
	}
	full := func(i int) bool { return v.held[i].Contains(all) && !v.at(i).Stopped }
	if i, ok := v.best(func(i int) bool { return full(i) && v.at(i).Pod.Role == Primary }); ok {
		return i, true
	}
	return v.best(full)
}

// undecided says why no first primary is chosen.
func (v *view) undecided() string {
	for i, s := range v.servers {
		if !s.Reachable {
			return fmt.Sprintf("the first primary is chosen once every instance answers; instance %d does not", i)
		}
	}
	if v.count(v.writable) > 1 {
		return "no primary: several instances can be written to; make all but one of them read-only"
	}
	return "no primary: no instance has everything that the others have; compare their GTID sets and clone anew the ones that are wrong"
}

func chooseFirst(_ *view, i int) Plan {
	return Plan{
		Do:     PromoteInStatus{Index: i, From: None},
		Why:    fmt.Sprintf("instance %d becomes the first primary", i),
		Events: []Event{{Reason: "PrimaryChosen", Note: fmt.Sprintf("Instance %d is the first primary", i)}},
	}
}

func waitFirst(v *view, _ int) Plan { return Plan{Why: v.undecided(), After: unwellPace} }

// copied: the primary has what it should start with.
func (v *view) copied() bool {
	s := v.at(v.p)
	return v.Source.open() && s.Reachable && !s.Pending && !s.Executed.Empty() && (s.Clone == Cloned || s.Clone == NotCloned)
}

// copies: the primary is empty, and nothing is being done about it.
func (v *view) copies() bool {
	return v.Source.open() && !v.StopAsked && v.free(v.p) && v.held[v.p].Empty() && v.at(v.p).Clone != Cloning
}

func noteCopied(v *view, _ int) Plan {
	return Plan{
		SourceDone: true, After: now, Why: "the copy from outside is complete",
		Events: []Event{{Reason: "InitCloned", Note: fmt.Sprintf("Instance %d is a copy of the source outside", v.p)}},
	}
}

func copyOutside(v *view, i int) Plan {
	p := Plan{Do: CloneFrom{Index: i, Donor: None}, Why: fmt.Sprintf("instance %d becomes a copy of the source outside", i)}
	if v.at(i).Clone == CloneFailed {
		p.Events = []Event{{Warning: true, Reason: "InitCloneFailed", Note: "The copy of the source outside failed and is begun anew"}}
	}
	return p
}

func suspect(v *view, i int) Plan {
	return Plan{Why: fmt.Sprintf("the primary, instance %d, does not answer", i), After: suspectPace}
}

// settled: nothing is to be done by clustering.
func settled(v *view, _ int) Plan {
	p := Plan{Why: "nothing is to be done", After: wellPace}
	if v.state() != StateHealthy || v.switchAsked() {
		p.After = unwellPace
	}
	return p
}

func waiting(why string, after time.Duration) func(*view, int) Plan {
	return func(*view, int) Plan { return Plan{Why: why, After: after} }
}
