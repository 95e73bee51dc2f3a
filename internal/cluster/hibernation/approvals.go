// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

const (
	// approvalWindow is the time after the start of a resume in which certificate requests are approved. After that, a
	// user must approve the requests of nodes.
	approvalWindow = 4 * time.Hour
	// reportGrace is the time that a node has to report if its machine may have been on all the time. Kubelets renew
	// their lease every ten seconds.
	reportGrace = time.Minute
)

// ApprovalsUntil returns the end of the time in which a resume's certificate requests are approved. It is zero without
// a resume, and for a repair.
func ApprovalsUntil(r *hivev1.HibernationRecord) time.Time {
	if r == nil || r.ResumeStartedAt == nil || r.Repair {
		return time.Time{}
	}
	return r.ResumeStartedAt.Add(approvalWindow)
}

// ClientApprovalsFrom returns the time from which nodes that have not reported may get client certificates. Zero
// means never.
func ClientApprovalsFrom(r *hivev1.HibernationRecord) time.Time {
	switch {
	case ApprovalsUntil(r).IsZero():
		return time.Time{}
	case r.AsleepAt != nil:
		return r.AsleepAt.Time
	default:
		return r.ResumeStartedAt.Add(reportGrace)
	}
}

const (
	// maxClockAhead is how far a node's last lease renewal or heartbeat may be ahead of the hub's time.
	maxClockAhead = 10 * time.Second
	// maxClockBehind exceeds the longest interval between two heartbeats of a ready node: without leases, kubelets
	// report every five minutes.
	maxClockBehind = 6 * time.Minute
)

// IsClockSkewed reports whether a node's times cannot be compared with the hub's. If the node's clock is ahead, its
// last lease before the hibernation would look like a new one.
func IsClockSkewed(o Observed, n ObservedNode) bool {
	return n.isClockAhead(o.Now) || o.Record != nil && o.Record.ResumeStartedAt != nil &&
		slices.ContainsFunc(o.Record.Nodes, func(r hivev1.RecordedNode) bool { return r.Name == n.Name && r.ClockSkewed })
}

func (n ObservedNode) isClockAhead(now time.Time) bool {
	return n.LastSeen.After(now.Add(maxClockAhead))
}

// isClockBehind reports whether a node is ready, and therefore reports to its cluster, but was last seen long ago
// according to its own clock.
func (n ObservedNode) isClockBehind(now time.Time) bool {
	return n.Ready && !n.LastSeen.IsZero() && n.LastSeen.Before(now.Add(-maxClockBehind))
}

// HasReported reports whether a node has renewed its lease or its heartbeat since the resume began.
func HasReported(r *hivev1.HibernationRecord, n ObservedNode) bool {
	if n.ClockSkewed {
		return n.HasChanged
	}
	return r != nil && r.ResumeStartedAt != nil && n.LastSeen.After(r.ResumeStartedAt.Time)
}

// approvalProblem returns a note about why missing nodes get no certificates; empty during a repair, or if the cause is
// unknown.
func (o Observed) approvalProblem() string {
	record := resumeRecord(o)
	switch {
	case record.Repair:
		return ""
	case !o.Now.Before(ApprovalsUntil(record)):
		return fmt.Sprintf("; certificate requests are no longer approved, because the resume began more than %s ago: approve them by hand", approvalWindow)
	}
	missing := o.missingNodes()
	for _, blocked := range o.Blocked {
		if blocked.NodeName == "" || slices.Contains(missing, blocked.NodeName) {
			return "; a certificate request is not approved: " + blocked.Reason
		}
	}
	return ""
}
