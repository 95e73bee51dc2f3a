// SPDX-License-Identifier: Apache-2.0

package clustering

import "fmt"

// FindingSeverity is the severity of a finding: whether kubectl moco refuses a start of clustering because of it.
type FindingSeverity string

// These are the severities. A start in spite of a Refuse finding leaves instances without replication, loses
// transactions or changes the primary. The manager also refuses it, unless the finding is harmless.
const (
	Warn   FindingSeverity = "warn"
	Refuse FindingSeverity = "refuse"
)

// Finding is a problem that a start of clustering would meet.
type Finding struct {
	Severity FindingSeverity
	// Message describes the problem and the effect of a start on it. Remedy describes the fix to apply before the
	// start.
	Message, Remedy string
	// IsHarmless means that a start loses nothing because of this finding. The plugin requires --force nevertheless.
	// The manager starts clustering in spite of it, so the cluster is not left without a primary.
	IsHarmless bool
}

// findStartRisks returns the problems that a start would meet, beginning with the reasons to refuse it.
func findStartRisks(d *derivedFacts) []Finding {
	if d.Offline {
		return nil
	}
	found := checkPrimary(d)
	for _, i := range d.instances {
		if !i.IsPrimary {
			found = append(found, checkReplica(i)...)
		}
	}
	var sorted []Finding
	for _, severity := range []FindingSeverity{Refuse, Warn} {
		for _, f := range found {
			if f.Severity == severity {
				sorted = append(sorted, f)
			}
		}
	}
	return sorted
}

// listRefusals lists the findings that keep clustering stopped, each with its remedy.
func listRefusals(d *derivedFacts) []string {
	var list []string
	for _, f := range findStartRisks(d) {
		if f.Severity == Refuse && !f.IsHarmless {
			list = append(list, f.Message+": "+f.Remedy)
		}
	}
	return list
}

func checkPrimary(d *derivedFacts) []Finding {
	p := d.primary
	switch {
	case !d.hasPrimary():
		return []Finding{{
			Severity: Warn, Message: "the status contains no primary; a start chooses one",
			Remedy: "none needed if the cluster is new",
		}}
	case d.primaryLostData:
		return []Finding{{
			Severity: Refuse, Message: fmt.Sprintf("instance %d, the primary, lacks transactions that replicas have; a start fails over", p.Index),
			Remedy: "make sure that the additional transactions of the replicas are wanted; then start with --force",
		}}
	case !p.Reachable:
		return []Finding{{
			Severity: Refuse, Message: fmt.Sprintf("instance %d, the primary, does not answer; a start fails over if the primary is down", p.Index),
			Remedy: "bring the primary back, or start with --force", IsHarmless: true,
		}}
	case p.SuperReadOnly && !d.staysReadOnly():
		return []Finding{{
			Severity: Warn, Message: fmt.Sprintf("instance %d, the primary, is read-only; a start makes it writable", p.Index),
			Remedy: "none needed if clients may write again",
		}}
	default:
		return nil
	}
}

func checkReplica(i *instanceFacts) []Finding {
	if !i.Reachable {
		return []Finding{{Severity: Warn, Message: fmt.Sprintf("instance %d does not answer and could not be checked",
			i.Index), Remedy: "bring the instance back first"}}
	}
	var found []Finding
	add := func(severity FindingSeverity, what, remedy string) {
		found = append(found, Finding{Severity: severity, Message: fmt.Sprintf("instance %d %s", i.Index, what), Remedy: remedy})
	}
	const alignOrReplace = "execute these transactions on the primary as empty transactions if the rows agree, or delete the volume claim and pod of the instance"
	if i.IsWritable {
		add(Refuse, "is writable in addition to the primary; a start makes it read-only",
			"run SET GLOBAL super_read_only=1 in this instance")
	}
	switch isIsolated := i.Channel.IO == Stopped && i.Pod.Role == RoleNone; {
	case i.Errant.IsEmpty():
	case isIsolated: // A start does not change the state of the instance.
		add(Warn, "has "+abbreviateSet(i.Errant)+", which the primary lacks; the instance is already isolated", alignOrReplace)
	default:
		add(Refuse, "has "+abbreviateSet(i.Errant)+", which the primary lacks; a start isolates it", alignOrReplace)
	}
	// A primary that lost data lacks these GTIDs, too. A separate finding reports that.
	if !i.Ahead.IsEmpty() && !i.cluster.primaryLostData {
		add(Refuse, "has "+abbreviateSet(i.Ahead)+"; the primary will use these GTIDs for other transactions, which this instance will skip", alignOrReplace)
	}
	switch c := i.Channel; {
	case isComparable(i) && i.IsEmptyReplica:
		add(Warn, "is empty; a start makes it a copy of the primary", "none needed")
	case isComparable(i) && !i.MissingPurged.IsEmpty():
		add(Refuse, "lacks "+abbreviateSet(i.MissingPurged)+", which the primary has purged; the instance cannot follow, and a start does not change that",
			"delete the volume claim and pod of the instance to re-clone it, or start with --force although it cannot follow")
		found[len(found)-1].IsHarmless = true
	case c.Present && c.SQL == Stopped && c.SQLErrno != 0:
		add(Warn, fmt.Sprintf("stopped applying with error %d; a start does not change that", c.SQLErrno),
			"fix the error that SHOW REPLICA STATUS reports, then run START REPLICA")
	case canStartSQLThread(i):
		add(Warn, "has its SQL thread stopped; a start of clustering starts the thread", "none needed if the instance may apply the transactions that it received")
	}
	return found
}
