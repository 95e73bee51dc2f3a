// SPDX-License-Identifier: Apache-2.0

package clustering

import "fmt"

// FindingSeverity says whether a finding speaks against a start of clustering.
type FindingSeverity string

// The severities: a start after Refuse leaves instances cut off, loses transactions or changes the primary.
const (
	Warn   FindingSeverity = "warn"
	Refuse FindingSeverity = "refuse"
)

// Finding is what a start of clustering would meet.
type Finding struct {
	Severity FindingSeverity
	// Message says what was found and what a start does about it, Remedy what to do before.
	Message, Remedy string
}

// CheckStart says what is worth knowing before clustering is started again, the reasons to refuse first.
func CheckStart(o Observed) []Finding {
	d := derive(o)
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

func checkPrimary(d *derivedFacts) []Finding {
	p := d.primary
	switch {
	case !d.hasPrimary():
		return []Finding{{Warn, "the status names no primary; a start chooses one", "none needed if the cluster is new"}}
	case d.primaryLostData:
		return []Finding{{
			Refuse, fmt.Sprintf("instance %d, the primary, lacks transactions that replicas have; a start fails over", p.Index),
			"make sure that the replicas are right; then start with force",
		}}
	case !p.Reachable:
		return []Finding{{
			Refuse, fmt.Sprintf("instance %d, the primary, does not answer; a start fails over if it is down", p.Index),
			"bring it back, or start with force",
		}}
	case p.SuperReadOnly && !d.staysReadOnly():
		return []Finding{{Warn, fmt.Sprintf("instance %d, the primary, is read-only; a start makes it writable", p.Index), "none needed if clients may write again"}}
	default:
		return nil
	}
}

func checkReplica(i *instanceFacts) []Finding {
	if !i.Reachable {
		return []Finding{{Warn, fmt.Sprintf("instance %d does not answer and could not be checked", i.Index), "bring it back first"}}
	}
	var found []Finding
	add := func(severity FindingSeverity, what, remedy string) {
		found = append(found, Finding{severity, fmt.Sprintf("instance %d %s", i.Index, what), remedy})
	}
	if i.IsWritable {
		add(Refuse, "can be written to beside the primary; a start makes it read-only", "SET GLOBAL super_read_only=1 in it")
	}
	if !i.Errant.IsEmpty() {
		add(Refuse, "has "+abbreviateSet(i.Errant)+", which the primary lacks; a start isolates it",
			"execute them on the primary as empty transactions if their rows agree, or delete the volume claim and pod of the instance")
	}
	// A primary that lost data lacks these numbers itself, which is a finding of its own.
	if !i.Ahead.IsEmpty() && !i.cluster.primaryLostData {
		add(Refuse, "has "+abbreviateSet(i.Ahead)+", which the primary has yet to number so; it will skip what the primary writes then",
			"delete the volume claim and pod of the instance, or switch over before the primary writes")
	}
	if isComparable(i) && !i.MissingPurged.IsEmpty() {
		add(Refuse, "lacks "+abbreviateSet(i.MissingPurged)+", which the primary has deleted; it cannot follow, and a start leaves it so", "delete its volume claim and pod to have it cloned anew, or start with force without it")
	}
	switch c := i.Channel; {
	case c.Present && c.SQL == Stopped && c.SQLErrno != 0:
		add(Warn, fmt.Sprintf("stopped applying with error %d; a start leaves it so", c.SQLErrno), "mend what SHOW REPLICA STATUS in it names, and START REPLICA")
	case canStartSQLThread(i):
		add(Warn, "has its SQL thread stopped; a start lets it go on", "none needed if it may apply what it received")
	}
	return found
}
