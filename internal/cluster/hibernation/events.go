// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// CertificatesApproved lists the certificate requests that were approved, with their nodes.
const CertificatesApproved = "CertificatesApproved"

// CertificateRequestsLeft reports a certificate request that was not approved, and the reason.
const CertificateRequestsLeft = "CertificateRequestsLeft"

// SpotMachinesReplaced lists the deleted OpenShift Machines of terminated spot machines. The cluster creates new
// Machines.
const SpotMachinesReplaced = "SpotMachinesReplaced"

// MachineGroupsLeft lists the Clusters of Cluster API and the MachineHealthChecks that stay paused after a hibernation,
// because another user paused them.
const MachineGroupsLeft = "MachineGroupsLeft"

// TransitionEvents returns the events about conditions that differ between the last report and the plan. For other
// conditions than Hibernating, it returns events only about problems and the termination of spot machines. A repeated
// report emits no event.
func TransitionEvents(before []metav1.Condition, p Plan) []decision.Event {
	var events []decision.Event
	if isTransition(meta.FindStatusCondition(before, hivev1.ClusterHibernatingCondition), p.Hibernating) {
		note := p.Hibernating.Message
		if p.Record != nil && p.Record.RequestedBy != "" && p.Hibernating.Reason == hivev1.StoppingHibernationReason {
			note = fmt.Sprintf("%s; asked for by %s", note, p.Record.RequestedBy)
		}
		events = append(events, decision.Event{
			Warning: isWarning(p.Hibernating), Reason: p.Hibernating.Reason, Action: powerAction, Note: note,
		})
	}
	if isTransition(meta.FindStatusCondition(before, hivev1.ClusterReadyCondition), p.Ready) && (isFailureReason(p.Ready.Reason) || startsAgain(p)) {
		events = append(events, decision.Event{Warning: true, Reason: p.Ready.Reason, Action: powerAction, Note: p.Ready.Message})
	}
	if do, ok := p.Do.(TerminateMachines); ok && isTransition(meta.FindStatusCondition(before, hivev1.ClusterReadyCondition), p.Ready) && p.Ready.Reason == hivev1.TerminatingSpotMachinesReason {
		events = append(events, decision.Event{
			Reason: p.Ready.Reason, Action: powerAction, Note: "Terminating spot machines, which the cluster replaces at the resume: " + joinNames(do.IDs),
		})
	}
	for kind, c := range map[string]decision.Condition{hivev1.ClusterDegradedCondition: p.Degraded, hivev1.ClusterStalledCondition: p.Stalled} {
		if c.Status == metav1.ConditionTrue && !meta.IsStatusConditionTrue(before, kind) {
			events = append(events, decision.Event{Warning: true, Reason: kind, Action: powerAction, Note: c.Message})
		}
	}
	return events
}

// OptionEvents returns a warning about an ignored option when it is first reported.
func OptionEvents(before []metav1.Condition, options StopOptions, p Plan) []decision.Event {
	isIgnored := func(message string) bool { return options.Ignored != "" && strings.Contains(message, options.Ignored) }
	reported := meta.FindStatusCondition(before, hivev1.ClusterReadyCondition)
	if !isIgnored(p.Ready.Message) || reported != nil && isIgnored(reported.Message) {
		return nil
	}
	return []decision.Event{{Warning: true, Reason: stoprecord.EventAnnotationIgnored, Action: powerAction, Note: options.Ignored}}
}

// ApprovalEvent returns the event about approved certificate requests.
func ApprovalEvent(note string) decision.Event {
	return decision.Event{Reason: CertificatesApproved, Action: powerAction, Note: note}
}

// ReplacementEvent returns the event about deleted Machines.
func ReplacementEvent(names []string) decision.Event {
	return decision.Event{Reason: SpotMachinesReplaced, Action: powerAction, Note: "Deleted the OpenShift Machines of terminated spot machines, so that new ones are created: " + joinNames(names)}
}

// LeftGroupsEvent returns the event about objects that stay paused.
func LeftGroupsEvent(names []string) decision.Event {
	return decision.Event{Warning: true, Reason: MachineGroupsLeft, Action: powerAction, Note: "These objects stay paused, because another user paused them during the hibernation: " + joinNames(names)}
}

// RefusalEvent returns the event about certificate requests that were not approved.
func RefusalEvent(note string) decision.Event {
	return decision.Event{Warning: true, Reason: CertificateRequestsLeft, Action: powerAction, Note: note}
}

func isTransition(old *metav1.Condition, c decision.Condition) bool {
	if old == nil {
		// The first report of a running cluster is not a transition.
		return c.Reason != hivev1.RunningHibernationReason
	}
	return old.Reason != c.Reason || old.Status != c.Status
}

func isWarning(c decision.Condition) bool {
	switch c.Reason {
	case hivev1.UnsupportedHibernationReason, hivev1.RefusedHibernationReason:
		return true
	// These reasons result from a user's decision, or from an installation in progress.
	case hivev1.DeletedReason, hivev1.PausedReason, hivev1.NotInstalledReason:
		return false
	default:
		return c.Status == metav1.ConditionUnknown
	}
}

// startsAgain reports whether a plan temporarily starts machines of a cluster that should hibernate.
func startsAgain(p Plan) bool {
	return p.Hibernating.Reason == hivev1.StoppingHibernationReason && p.Ready.Reason == hivev1.StartingMachinesReason
}

func isFailureReason(reason string) bool {
	switch reason {
	case hivev1.FailedToStopReason, hivev1.FailedToStartMachinesReason, hivev1.FailedToApproveReason, hivev1.APIUnreachableReason:
		return true
	default:
		return false
	}
}
