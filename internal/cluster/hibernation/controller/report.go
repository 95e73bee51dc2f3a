// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/csr"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

// report writes the plan to the status. Later passes observe the results of actions.
func (c Controller) report(cd *hivev1.ClusterDeployment, seen *clusterObservation, plan hibernation.Plan, _ *reconcile.RefusedError) reconcile.FollowUp {
	// Watching replaces passes that would find no change.
	c.accounts.Watch(seen.name, plan.CloudInterval)
	if plan.ProbeInterval > 0 {
		c.pool.Watch(seen.name, plan.ProbeInterval)
	}
	before := hibernation.ReadReportedConditions(cd.Status.Conditions, cd.Status.PowerState, plan)
	events := append(hibernation.StopEvents(cd.Status.Stops, seen.Stops), hibernation.TransitionEvents(before, plan)...)
	events = append(events, hibernation.OptionEvents(cd.Status.Conditions, seen.Options, plan)...)
	if left := hibernation.LeftGroups(seen.Observed, plan); len(left) > 0 {
		events = append(events, hibernation.LeftGroupsEvent(left))
	}
	changes := stoprecord.Changes("machines", cd.Status.Stops, seen.Stops)
	cd.Status.Stops = seen.Stops
	var decided []csr.Verdict
	if seen.approvals != nil {
		decided = seen.approvals.unreported
		events = append(events, approvalEvents(decided)...)
	}
	for some := range slices.Chunk(seen.replaced, maxNamesPerEvent) {
		events = append(events, hibernation.ReplacementEvent(some))
	}
	power := hibernation.ReportPower(plan)
	if c.UsesHiveReasons {
		power = hibernation.ReportPowerAsHive(plan)
	}
	owned := map[string]decision.Condition{
		hivev1.ClusterHibernatingCondition: power.Hibernating,
		hivev1.ClusterReadyCondition:       power.Ready,
		hivev1.ClusterUnreachableCondition: plan.Unreachable,
	}
	events = append(events, reportCheck(cd, seen, owned)...)
	addTrouble(owned, cd.Status.Conditions, hivev1.ClusterDegradedCondition, plan.Degraded)
	addTrouble(owned, cd.Status.Conditions, hivev1.ClusterStalledCondition, plan.Stalled)
	setPowerState(cd, owned, power.PowerState, c.Clock)
	transitions := finishedTransitions(cd.Status.Hibernation, plan.Record)
	cd.Status.Savings = savings.Next(cd.Status.Savings, hibernation.SavedRate(plan.Record), seen.moment)
	cd.Status.Hibernation = plan.Record
	if seen.version != "" && (cd.Status.ClusterVersionStatus == nil || cd.Status.ClusterVersionStatus.Desired.Version != seen.version) {
		cd.Status.ClusterVersionStatus = &hivev1.ClusterVersionStatus{Desired: hivev1.Release{Version: seen.version}}
	}
	requeueAfter := plan.RequeueAfter
	if retry := c.surveys.untilRetry(seen.name, seen.Now); retry > 0 && hibernation.MayBeSurveyed(seen.Observed) {
		requeueAfter = min(requeueAfter, retry)
	}
	c.accounts.FinishPass(seen.name, requeueAfter)
	return reconcile.FollowUp{
		RemembersLater: isResumeRecent(plan.Record, seen.Now),
		Rule:           plan.Rule, RequeueAfter: max(requeueAfter, seen.ownerInterval), Events: events,
		Changes: changes, Request: stoprecord.RequestOf(seen.Stops, seen.Scheduled),
		AfterSave: func() {
			c.Metrics.countTransitions(events, decided)
			c.Metrics.observeDurations(transitions)
			if seen.approvals != nil {
				seen.approvals.unreported = nil
			}
		},
	}
}

// setPowerState sets the conditions and the power state that follows from them. kubectl shows the transition time of
// Ready as SINCE. It is therefore also set when the power state changes: Ready stays False from the start of a
// hibernation to the end of the next resume.
func setPowerState(cd *hivev1.ClusterDeployment, owned map[string]decision.Condition, powerState string, now clock.PassiveClock) {
	reconcile.SetConditions(&cd.Status.Conditions, owned, cd.Generation, now)
	cd.Status.ObservedGeneration = cd.Generation
	before := cd.Status.PowerState
	cd.Status.PowerState = powerState
	if cd.Status.PowerState != before {
		meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterReadyCondition).LastTransitionTime = metav1.NewTime(now.Now())
	}
}

// rememberDelay is the time after the start or the end of a resume in which the annotation is not written, so that only
// the status contains the resume and the preceding stop. This saves a write for each cluster while a fleet resumes.
const rememberDelay = time.Minute

func isResumeRecent(r *hivev1.HibernationRecord, now time.Time) bool {
	isRecent := func(at *metav1.Time) bool { return at != nil && now.Sub(at.Time) < rememberDelay }
	return r != nil && (isRecent(r.ResumeStartedAt) || isRecent(r.ResumedAt))
}

// addTrouble adds a condition that most clusters never have. Once added, the condition stays, so clients can wait
// until it is False.
func addTrouble(owned map[string]decision.Condition, before []metav1.Condition, kind string, is decision.Condition) {
	switch {
	case is.Status == metav1.ConditionTrue:
		owned[kind] = is
	case meta.FindStatusCondition(before, kind) != nil:
		owned[kind] = decision.False(hivev1.AsExpectedReason, "The cluster is not "+strings.ToLower(kind))
	}
}

// maxVerdictsPerEvent keeps an event's note within its limit of one kilobyte.
const maxVerdictsPerEvent = 8

// maxNamesPerEvent keeps an event's note within its limit: a name has at most 253 bytes.
const maxNamesPerEvent = 3

// approvalEvents returns events that list all approvals, and one event for the first request that was not approved.
func approvalEvents(decided []csr.Verdict) []decision.Event {
	var approved, left []string
	for _, v := range decided {
		if v.Decision == csr.Approve {
			approved = append(approved, fmt.Sprintf("%s of %s (%s)", v.Kind, v.NodeName, v.Name))
		} else {
			left = append(left, fmt.Sprintf("%s (%s)", v.Reason, v.Name))
		}
	}
	var events []decision.Event
	for some := range slices.Chunk(approved, maxVerdictsPerEvent) {
		events = append(events, hibernation.ApprovalEvent("Approved certificate requests: "+strings.Join(some, ", ")))
	}
	if len(left) > 0 {
		note := "Did not approve a certificate request: " + left[0]
		if len(left) > 1 {
			note = fmt.Sprintf("%s; and %d more", note, len(left)-1)
		}
		events = append(events, hibernation.RefusalEvent(note))
	}
	return events
}
