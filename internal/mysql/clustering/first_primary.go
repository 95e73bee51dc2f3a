// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"

	"github.com/torpor-dev/torpor/internal/decision"
)

// The first primary, and what it starts with.

// findFirstPrimary returns the instance that becomes the first primary: the one that serves already, or else one that has
// everything. The choice is made once, while all instances answer, because one that is absent may hold more.
func findFirstPrimary(d *derivedFacts) *instanceFacts {
	if d.hasPrimary() || d.count(isReachable) < len(d.instances) {
		return nil
	}
	for _, suits := range []func(*instanceFacts) bool{servesClients, func(i *instanceFacts) bool { return i.IsWritable && hasEverything(i) }} {
		if found := d.findOldestSeries(suits); found != nil {
			if d.count(suits) > 1 {
				return nil // Each of them may have acknowledged what the others lack.
			}
			return found
		}
	}
	if d.any(isWritable) {
		return nil
	}
	suits := func(i *instanceFacts) bool { return hasEverything(i) && !i.Stopped }
	if found := d.findOldestSeries(func(i *instanceFacts) bool { return suits(i) && i.Pod.Role == RolePrimary }); found != nil {
		return found
	}
	return d.findOldestSeries(suits)
}

// servesClients reports whether an instance is written to, and enough others acknowledge that.
func servesClients(i *instanceFacts) bool {
	required := i.cluster.requiredAcks
	return i.IsWritable && (required == 0 || i.SemiSync.Source && i.SemiSync.WaitFor >= required && len(i.Connected) >= required)
}

// isWritableWithoutPrimary reports whether an instance is written to before there is a primary, does not serve, and lacks
// what others have.
func isWritableWithoutPrimary(i *instanceFacts) bool {
	return !i.cluster.hasPrimary() && i.IsWritable && i.MayActNow && !servesClients(i) && !hasEverything(i)
}

// hasEverything reports whether no instance has anything that this one lacks.
func hasEverything(i *instanceFacts) bool {
	return !i.cluster.any(func(other *instanceFacts) bool {
		more := other.Held.Subtract(i.Held)
		if i.IsWritable {
			more = more.NotNumberedBy(i.UUID) // Others receive what it is about to commit.
		}
		return !more.IsEmpty()
	})
}

// describeMissingPrimary says why no first primary is chosen.
func describeMissingPrimary(d *derivedFacts) string {
	if absent := d.findFirst(func(i *instanceFacts) bool { return !i.Reachable }); absent != nil {
		return fmt.Sprintf("the first primary is chosen once every instance answers; instance %d does not", absent.Index)
	}
	if d.any(isWritable) {
		return "no primary: instances can be written to that cannot be it, or several; make all but one of them read-only"
	}
	return "no primary: no instance has everything that the others have; compare their GTID sets and clone anew the ones that are wrong"
}

func chooseFirstPrimary(_ *derivedFacts, i *instanceFacts) Plan {
	return Plan{
		Do:     PromoteInStatus{Index: i.Index, From: NoInstance},
		Why:    fmt.Sprintf("instance %d becomes the first primary", i.Index),
		Events: []decision.Event{normalEvent(EventPrimaryChosen, fmt.Sprintf("Instance %d is the first primary", i.Index))},
	}
}

func waitForFirstPrimary(d *derivedFacts, _ *instanceFacts) Plan {
	return Plan{Why: describeMissingPrimary(d), After: degradedInterval}
}

// isCopiedFromOutside reports whether the primary has become the copy that it should start as.
func isCopiedFromOutside(d *derivedFacts) bool {
	p := d.primary
	return d.Source.isOutstanding() && p.Reachable && !p.Pending && !p.Executed.IsEmpty() && (p.Clone == Cloned || p.Clone == NotCloned)
}

func needsCopyFromOutside(d *derivedFacts) bool {
	p := d.primary
	return d.Source.isOutstanding() && !d.StopAsked && p.MayActNow && p.Held.IsEmpty() && p.Clone != Cloning
}

func recordCopyFromOutside(_ *derivedFacts, p *instanceFacts) Plan {
	return Plan{
		SourceDone: true, After: immediately, Why: "the copy from outside is complete",
		Events: []decision.Event{normalEvent(EventInitCloned, fmt.Sprintf("Instance %d is a copy of the source outside", p.Index))},
	}
}

func copyFromOutside(_ *derivedFacts, p *instanceFacts) Plan {
	plan := Plan{Do: CloneFrom{Index: p.Index, Donor: NoInstance}, Why: fmt.Sprintf("instance %d becomes a copy of the source outside", p.Index)}
	if p.Clone == CloneFailed {
		plan.Events = []decision.Event{warningEvent(EventInitCloneFailed, "The copy of the source outside failed and is begun anew")}
	}
	return plan
}
