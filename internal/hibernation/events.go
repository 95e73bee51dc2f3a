// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// Event is something worth telling about a cluster.
type Event struct {
	Warning bool
	// Reason equals the reason of the condition that changed, or CertificatesApproved.
	Reason string
	Note   string
}

// CertificatesApproved lists the certificate requests that were approved, with their nodes.
const CertificatesApproved = "CertificatesApproved"

// TransitionEvents tells what changed from the conditions before to the plan. A repetition is no event.
func TransitionEvents(before []metav1.Condition, p Plan) []Event {
	var list []Event
	if old := find(before, hivev1.ClusterHibernatingCondition); isTransition(old, p.Hibernating) {
		e := Event{Reason: p.Hibernating.Reason, Note: p.Hibernating.Message}
		e.Warning = isWarning(p.Hibernating)
		if p.Record != nil && p.Record.RequestedBy != "" && p.Hibernating.Reason == hivev1.StoppingHibernationReason {
			e.Note = fmt.Sprintf("%s; asked for by %s", e.Note, p.Record.RequestedBy)
		}
		list = append(list, e)
	}
	if old := find(before, hivev1.ClusterReadyCondition); isTransition(old, p.Ready) && isFailureReason(p.Ready.Reason) {
		list = append(list, Event{Warning: true, Reason: p.Ready.Reason, Note: p.Ready.Message})
	}
	return list
}

func find(conditions []metav1.Condition, kind string) *metav1.Condition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// isTransition: the first report of a cluster that simply runs is no news.
func isTransition(old *metav1.Condition, c Condition) bool {
	if old == nil {
		return c.Reason != hivev1.RunningHibernationReason
	}
	return old.Reason != c.Reason || old.Status != c.Status
}

// isWarning: what somebody has decided or not yet done is none.
func isWarning(c Condition) bool {
	switch c.Reason {
	case hivev1.UnsupportedHibernationReason:
		return true
	case hivev1.DeletedReason, hivev1.PausedReason, hivev1.NotInstalledReason:
		return false
	default:
		return c.Status == metav1.ConditionUnknown
	}
}

func isFailureReason(reason string) bool {
	switch reason {
	case hivev1.FailedToStopReason, hivev1.FailedToStartMachinesReason, hivev1.FailedToApproveReason, hivev1.APIUnreachableReason:
		return true
	default:
		return false
	}
}
