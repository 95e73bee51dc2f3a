// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// A cluster with a source outside is born as a copy of it, and its primary follows it and stays read-only. See
// docs/adr/0025-a-source-outside.md.

// isCopyOutstanding reports whether the primary is not the copy yet that it should start as.
func isCopyOutstanding(d *derivedFacts) bool { return d.Source.isOutstanding() }

// isCopiedFromOutside reports whether the primary has become the copy that it should start as. One that follows a server outside was
// made so by somebody else.
func isCopiedFromOutside(d *derivedFacts) bool {
	p := d.primary
	isCopy := p.Clone == Cloned || p.Clone == NotCloned && receivesFromOutside(d)
	return d.Source.isOutstanding() && p.MayActNow && !p.Executed.IsEmpty() && isCopy && d.SourceProblem == "" && !restsAfterCopy(p)
}

func needsCopyFromOutside(d *derivedFacts) bool {
	p := d.primary
	return d.Source.isOutstanding() && !d.StopAsked && p.MayActNow && p.Held.IsEmpty() && p.Clone != Cloning && d.SourceProblem == "" && !restsAfterCopy(p)
}

// restsAfterCopy reports whether the source outside was asked in vain a short while ago. It may count failed logins.
func restsAfterCopy(p *instanceFacts) bool {
	return !p.Past.FailedAt.IsZero() && p.cluster.Now.Sub(p.Past.FailedAt) < refusalBackoff
}

func finishCopyFromOutside(_ *derivedFacts, p *instanceFacts) Plan {
	return Plan{
		Do: FinishCopy{Index: p.Index}, SourceDone: true, Why: "the copy from outside is complete",
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

func waitForCopyFromOutside(d *derivedFacts, _ *instanceFacts) Plan {
	return Plan{Why: describeCopy(d), After: degradedInterval}
}

// describeCopy says how far a copy from outside is, or what it waits for.
func describeCopy(d *derivedFacts) string {
	p := d.primary
	switch {
	case d.SourceProblem != "":
		return "The primary cannot be copied from outside: " + d.SourceProblem
	case !d.hasPrimary():
		return "The primary is to be copied from outside; " + describeMissingPrimary(d)
	case p.Clone == Cloning:
		return "The primary is being copied from outside"
	case !p.Reachable:
		return fmt.Sprintf("The primary is to be a copy from outside; instance %d does not answer", p.Index)
	case !p.Executed.IsEmpty() && p.Clone != Cloned && !receivesFromOutside(d):
		return fmt.Sprintf("The primary cannot be copied from outside: expected an empty instance %d, found transactions of its own; "+
			"to keep them, remove spec.replicationSourceSecretName", p.Index)
	case !p.Executed.IsEmpty() && p.Past.Failure != "":
		return "The primary is a copy from outside, and INIT_AFTER_CLONE_SQL of the Secret failed in it: " + p.Past.Failure + "; correct it; it is tried again"
	case p.Clone == Cloned && p.Executed.IsEmpty():
		return "The primary could not be copied from outside: expected transactions in the copy, found none; the source needs gtid_mode = ON and one transaction; it is tried again"
	case p.Past.Failure != "":
		return "The primary could not be copied from outside: " + p.Past.Failure + "; it is tried again"
	default:
		return "The primary is being copied from outside"
	}
}

// receivesFromOutside reports whether the channel of a primary that is to be a copy leads to no other instance.
func receivesFromOutside(d *derivedFacts) bool {
	c := d.primary.Channel
	leadsHere := func(i *instanceFacts) bool { return i.Host == c.SourceHost }
	return d.staysReadOnly() && c.Present && !d.any(leadsHere)
}

// needsSourceOutside reports whether the primary has yet to be told to follow the source outside. What it received of another instance
// is applied before.
func needsSourceOutside(d *derivedFacts) bool {
	return d.staysReadOnly() && d.primary.MayActNow && !d.primaryIsConfigured && d.SourceProblem == "" && !primaryHasBacklog(d)
}

func followSourceOutside(_ *derivedFacts, p *instanceFacts) Plan {
	return Plan{Do: FollowOutside{Index: p.Index}, Why: fmt.Sprintf("instance %d, the primary, is told to follow the source outside", p.Index)}
}

// needsAccountsOfCopy reports whether the primary's accounts are of an older list, or the source outside has changed them, so that a
// replica cannot log in. They are not made through the binary log, because the copy has no transactions of its own.
func needsAccountsOfCopy(d *derivedFacts) bool {
	const accessDenied = 1045
	isRefused := func(i *instanceFacts) bool {
		return i.FollowsPrimary && i.Channel.IO != Running && i.Channel.IOErrno == accessDenied
	}
	return d.staysReadOnly() && d.primary.MayActNow && d.primaryIsConfigured && (d.primary.HasOldAccounts || d.any(isRefused))
}

func takeOverAccounts(_ *derivedFacts, p *instanceFacts) Plan {
	return Plan{Do: TakeOverAccounts{Index: p.Index}, Why: fmt.Sprintf("the accounts of a copy are made anew in the primary, instance %d", p.Index)}
}

// isCopyIdle reports whether the primary does not receive from the source outside.
func isCopyIdle(d *derivedFacts) bool {
	p := d.primary
	return d.staysReadOnly() && p.MayActNow && d.primaryIsConfigured && p.Channel.IO == Stopped && !d.switchoverIsActive && !restsAfterRefusal(p)
}

// isCopyWritable reports whether somebody can write to a copy, so that it is one no longer.
func isCopyWritable(d *derivedFacts) bool {
	return d.staysReadOnly() && d.primary.MayActNow && !d.primary.SuperReadOnly
}

// shouldStopCopy begins the switchover of a primary that is read-only anyway. What it stops with, another must have.
func shouldStopCopy(d *derivedFacts) bool {
	p := d.primary
	return d.switchoverIsActive && d.staysReadOnly() && d.any(isSwitchoverCandidate) && p.MayActNow && p.Channel.Present && p.Channel.IO != Stopped
}

// withoutOutside leaves out what came from the source outside: an instance may have more of that than the primary, which gets it too.
func (d *derivedFacts) withoutOutside(set gtid.Set) gtid.Set {
	if !d.staysReadOnly() {
		return set
	}
	var own gtid.Set
	for _, i := range d.instances {
		own = own.Union(set.NumberedBy(i.UUID))
	}
	return own
}

// describeCopyProblem says why the primary does not follow the source outside as it should; empty if it does, or should not.
func describeCopyProblem(d *derivedFacts) string {
	const more = "; SHOW REPLICA STATUS in it says more"
	c := d.primary.Channel
	switch {
	case !d.staysReadOnly() || d.Source.isOutstanding():
		return ""
	case d.SourceProblem != "":
		return "is the primary, and its source outside is not known: " + d.SourceProblem
	case !d.primary.SuperReadOnly:
		return "is a copy of the source outside and can be written to"
	case !d.primaryIsConfigured:
		return "is the primary and does not follow the source outside yet"
	case c.SQL == Stopped && c.SQLErrno != 0:
		return fmt.Sprintf("is the primary and stopped applying with error %d what it receives from the source outside%s", c.SQLErrno, more)
	case c.IO != Running && c.IOErrno != 0:
		return fmt.Sprintf("is the primary and does not receive from the source outside, with error %d%s", c.IOErrno, more)
	case c.IO != Running:
		return "is the primary and does not receive from the source outside"
	case c.SQL != Running:
		return "is the primary and does not apply what it receives from the source outside"
	default:
		return ""
	}
}

// describeFollowing is what a healthy cluster does beside.
func describeFollowing(d *derivedFacts) string {
	if !d.staysReadOnly() {
		return ""
	}
	return ", which follows the source outside"
}
