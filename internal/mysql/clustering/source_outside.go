// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// A cluster with an external server starts as a copy of that server. Its primary follows the server and stays
// read-only. See docs/adr/0025-a-source-outside.md.

// isCopyOutstanding reports whether the initial copy to the primary is configured but not complete.
func isCopyOutstanding(d *derivedFacts) bool { return d.Source.isOutstanding() }

// isCopiedFromOutside reports whether the initial copy to the primary is complete, but not recorded in the status yet.
// If the primary already follows an external server, a user made the copy.
func isCopiedFromOutside(d *derivedFacts) bool {
	p := d.primary
	isCopy := p.Clone == Cloned || p.Clone == NotCloned && receivesFromOutside(d)
	return d.Source.isOutstanding() && p.MayActNow && !p.Executed.IsEmpty() && isCopy && d.SourceProblem == "" && !restsAfterCopy(p)
}

func needsCopyFromOutside(d *derivedFacts) bool {
	p := d.primary
	return d.Source.isOutstanding() && !d.StopAsked && p.MayActNow && p.Held.IsEmpty() && p.Clone != Cloning &&
		d.SourceProblem == "" && !restsAfterCopy(p)
}

// restsAfterCopy reports whether the primary is in its back-off after a failed copy of the external server. The
// external server may count failed logins.
func restsAfterCopy(p *instanceFacts) bool {
	return !p.Past.FailedAt.IsZero() && p.cluster.Now.Sub(p.Past.FailedAt) < refusalBackoff
}

func finishCopyFromOutside(_ *derivedFacts, p *instanceFacts) Plan {
	return Plan{
		Do: FinishCopy{Index: p.Index}, SourceDone: true, Why: "the copy from the external server is complete",
		Events: []decision.Event{normalEvent(EventInitCloned,
			fmt.Sprintf("Instance %d is a copy of the external server", p.Index))},
	}
}

func copyFromOutside(_ *derivedFacts, p *instanceFacts) Plan {
	plan := Plan{
		Do:  CloneFrom{Index: p.Index, Donor: NoInstance},
		Why: fmt.Sprintf("instance %d becomes a copy of the external server", p.Index),
	}
	if p.Clone == CloneFailed {
		plan.Events = []decision.Event{warningEvent(EventInitCloneFailed,
			"The copy of the external server failed and is retried")}
	}
	return plan
}

func waitForCopyFromOutside(d *derivedFacts, _ *instanceFacts) Plan {
	return Plan{Why: describeCopy(d), After: degradedInterval}
}

// describeCopy describes the progress of the copy of the external server, or the condition that it waits for.
func describeCopy(d *derivedFacts) string {
	p := d.primary
	switch {
	case d.SourceProblem != "":
		return "The primary cannot be copied from the external server: " + d.SourceProblem
	case !d.hasPrimary():
		return "The primary will be copied from the external server; " + describeMissingPrimary(d)
	case p.Clone == Cloning:
		return "The primary is being copied from the external server"
	case !p.Reachable:
		return fmt.Sprintf("The primary will be copied from the external server; instance %d does not answer", p.Index)
	case !p.Executed.IsEmpty() && p.Clone != Cloned && !receivesFromOutside(d):
		return fmt.Sprintf("The primary cannot be copied from the external server: expected an empty instance %d, found transactions of its own; "+
			"to keep them, remove spec.replicationSourceSecretName", p.Index)
	case !p.Executed.IsEmpty() && p.Past.Failure != "":
		return "The primary was copied from the external server, but INIT_AFTER_CLONE_SQL of the Secret failed: " + p.Past.Failure +
			"; correct these statements, which are retried"
	case p.Clone == Cloned && p.Executed.IsEmpty():
		return "The primary could not be copied from the external server: expected at least one transaction in the copy, found none; " +
			"set gtid_mode = ON in the external server and execute a transaction there; the copy is retried"
	case p.Past.Failure != "":
		return "The primary could not be copied from the external server: " + p.Past.Failure + "; the copy is retried"
	default:
		return "The primary is being copied from the external server"
	}
}

// receivesFromOutside reports whether the channel of a primary that should be a copy replicates from a server that is
// not an instance of the cluster.
func receivesFromOutside(d *derivedFacts) bool {
	c := d.primary.Channel
	leadsHere := func(i *instanceFacts) bool { return i.Host == c.SourceHost }
	return d.staysReadOnly() && c.Present && !d.any(leadsHere)
}

// needsSourceOutside reports whether the primary is yet to be configured to follow the external server. The primary
// first applies the transactions that it received from another instance.
func needsSourceOutside(d *derivedFacts) bool {
	return d.staysReadOnly() && d.primary.MayActNow && !d.primaryIsConfigured && d.SourceProblem == "" && !primaryHasBacklog(d)
}

func followSourceOutside(_ *derivedFacts, p *instanceFacts) Plan {
	return Plan{
		Do:  FollowOutside{Index: p.Index},
		Why: fmt.Sprintf("instance %d, the primary, is being configured to follow the external server", p.Index),
	}
}

// needsAccountsOfCopy reports whether the primary's accounts are outdated, or were changed by the external server so
// that a replica cannot log in. Their update is not written to the binary log, because the copy must not have
// transactions of its own.
func needsAccountsOfCopy(d *derivedFacts) bool {
	const accessDenied = 1045
	isRefused := func(i *instanceFacts) bool {
		return i.FollowsPrimary && i.Channel.IO != Running && i.Channel.IOErrno == accessDenied
	}
	return d.staysReadOnly() && d.primary.MayActNow && d.primaryIsConfigured && (d.primary.HasOldAccounts || d.any(isRefused))
}

func takeOverAccounts(_ *derivedFacts, p *instanceFacts) Plan {
	return Plan{
		Do:  TakeOverAccounts{Index: p.Index},
		Why: fmt.Sprintf("the accounts of a copy are created again in the primary, instance %d", p.Index),
	}
}

// isCopyIdle reports whether the primary has stopped receiving from the external server and should continue.
func isCopyIdle(d *derivedFacts) bool {
	p := d.primary
	return d.staysReadOnly() && p.MayActNow && d.primaryIsConfigured && p.Channel.IO == Stopped &&
		!d.switchoverIsActive && !restsAfterRefusal(p)
}

// isCopyWritable reports whether clients or administrators can write to a copy, which would make it diverge.
func isCopyWritable(d *derivedFacts) bool {
	return d.staysReadOnly() && d.primary.MayActNow && !d.primary.SuperReadOnly
}

// shouldStopCopy reports whether the switchover of a copy can begin. Its primary is already read-only, so the first
// step is to stop receiving. The new primary must have every transaction that the old one has at that moment.
func shouldStopCopy(d *derivedFacts) bool {
	p := d.primary
	return d.switchoverIsActive && d.staysReadOnly() && d.any(isSwitchoverCandidate) && p.MayActNow &&
		p.Channel.Present && p.Channel.IO != Stopped
}

// withoutOutside removes the transactions of the external server from a set. An instance may have more of these
// transactions than the primary, which will receive them too.
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

// describeCopyProblem returns why the primary does not follow the external server, or "" if there is no problem or no
// external server.
func describeCopyProblem(d *derivedFacts) string {
	const more = "; see the output of SHOW REPLICA STATUS"
	c := d.primary.Channel
	switch {
	case !d.staysReadOnly() || d.Source.isOutstanding():
		return ""
	case d.SourceProblem != "":
		return "is the primary, and its external server is not known: " + d.SourceProblem
	case !d.primary.SuperReadOnly:
		return "is a copy of the external server and is writable"
	case !d.primaryIsConfigured:
		return "is the primary and does not follow the external server yet"
	case c.SQL == Stopped && c.SQLErrno != 0:
		return fmt.Sprintf("is the primary and stopped applying transactions of the external server with error %d%s",
			c.SQLErrno, more)
	case c.IO != Running && c.IOErrno != 0:
		return fmt.Sprintf("is the primary and does not receive from the external server, with error %d%s", c.IOErrno, more)
	case c.IO != Running:
		return "is the primary and does not receive from the external server"
	case c.SQL != Running:
		return "is the primary and does not apply the transactions of the external server"
	default:
		return ""
	}
}

// describeFollowing returns a suffix for the message of a healthy cluster that follows an external server.
func describeFollowing(d *derivedFacts) string {
	if !d.staysReadOnly() {
		return ""
	}
	return ", which follows the external server"
}
