// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// requestedByTimer is the requester of a hibernation that is due without a request in spec.powerState.
const requestedByTimer = "spec.hibernateAfter"

// RunTimer limits how long a cluster runs before it is hibernated automatically.
type RunTimer struct {
	// Limit is spec.hibernateAfter. It is zero if the run time is not limited.
	Limit time.Duration
	// Since is the latest of three times: the installation, the claim, and the last request to resume.
	Since time.Time
	// ResumeRequestedAt is the time at which a user requested a resume by an annotation; zero without such a request.
	ResumeRequestedAt time.Time
}

// ReadTimer reads the cluster's run time limit and describes a malformed value. If the ClusterDeployment has no
// installation time, its creation time is used, so an adopted cluster does not appear to have run for years.
func ReadTimer(cd *hivev1.ClusterDeployment) (t RunTimer, malformed string) {
	pool := cd.Spec.ClusterPoolRef
	if cd.Spec.HibernateAfter == "" || pool != nil && pool.ClaimName == "" {
		return t, ""
	}
	limit, err := time.ParseDuration(cd.Spec.HibernateAfter)
	if err != nil || limit < 0 {
		return t, fmt.Sprintf("Expected spec.hibernateAfter to be a duration such as 8h, found %.40q; correct or remove it", cd.Spec.HibernateAfter)
	}
	if asked := cd.Annotations[hivev1.ResumeRequestedAtAnnotation]; asked != "" {
		if t.ResumeRequestedAt, err = time.Parse(time.RFC3339, asked); err != nil {
			return RunTimer{}, fmt.Sprintf("Expected the annotation %s to be a time such as %s, found %.40q; correct or remove it",
				hivev1.ResumeRequestedAtAnnotation, "2026-07-01T08:00:00Z", asked)
		}
	}
	t.Limit, t.Since = limit, cd.CreationTimestamp.Time
	times := []*metav1.Time{cd.Status.InstalledTimestamp, new(metav1.NewTime(t.ResumeRequestedAt))}
	if pool != nil {
		times = append(times, pool.ClaimedTimestamp)
	}
	for _, at := range times {
		if at != nil && at.After(t.Since) {
			t.Since = at.Time
		}
	}
	return t, ""
}

// endAt returns the time at which a running cluster's run time ends. It is zero if the cluster has no limit or does
// not run yet.
func (t RunTimer) endAt(r *hivev1.HibernationRecord) time.Time {
	switch {
	case t.Limit <= 0 || r != nil && r.ResumedAt == nil:
		return time.Time{}
	case r != nil && r.ResumedAt.After(t.Since):
		return r.ResumedAt.Add(t.Limit)
	default:
		return t.Since.Add(t.Limit)
	}
}

// DesiredPowerState returns the power state that a cluster should have. Once the run time has elapsed, it is
// Hibernating regardless of spec.powerState, until a user requests a resume. The spec is never written, because its
// owner may be a GitOps tool.
func DesiredPowerState(spec hivev1.PowerState, timer RunTimer, record *hivev1.HibernationRecord, now time.Time) hivev1.PowerState {
	if spec == hivev1.PowerStateHibernating || timer.Limit <= 0 {
		return spec
	}
	if isHibernationOpen(record) {
		// The timer caused a hibernation that has begun. The cluster hibernates until a user requests a resume.
		isChanged := record.PowerStateBefore == nil || *record.PowerStateBefore != spec
		if isChanged || !timer.ResumeRequestedAt.Before(record.SleepStartedAt.Time) {
			return spec
		}
		return hivev1.PowerStateHibernating
	}
	if end := timer.endAt(record); !end.IsZero() && !now.Before(end) {
		return hivev1.PowerStateHibernating
	}
	return spec
}

// isTimedOut reports whether the cluster should hibernate only because its run time has elapsed.
func (o Observed) isTimedOut() bool {
	return o.shouldHibernate() && o.SpecPowerState != hivev1.PowerStateHibernating && o.Timer.Limit > 0
}

// requester returns the requester of the hibernation.
func (o Observed) requester() string {
	if o.isTimedOut() {
		return requestedByTimer
	}
	return o.RequestedBy
}

// requestedAt returns the time at which the hibernation was requested.
func (o Observed) requestedAt() time.Time {
	if o.isTimedOut() {
		return o.Timer.endAt(o.Record)
	}
	return o.RequestedAt
}

// timeoutNote returns a note about why a cluster hibernates without a request in spec.powerState, and how to resume it.
func (o Observed) timeoutNote() string {
	if !o.isTimedOut() {
		return ""
	}
	return fmt.Sprintf("; spec.hibernateAfter (%s) has elapsed: to resume the cluster, set spec.powerState to Running, or if it is Running already, set the annotation %s to the current time",
		o.Timer.Limit, hivev1.ResumeRequestedAtAnnotation)
}

// timerNote describes when the timer will hibernate a running cluster.
func (o Observed) timerNote(r *hivev1.HibernationRecord) string {
	end := o.Timer.endAt(r)
	if end.IsZero() {
		return ""
	}
	return fmt.Sprintf("; spec.hibernateAfter hibernates the cluster at %s", end.UTC().Format(time.RFC3339))
}

// untilTimeout shortens an interval so that it ends no later than a running cluster's run time.
func (o Observed) untilTimeout(r *hivev1.HibernationRecord, interval time.Duration) time.Duration {
	end := o.Timer.endAt(r)
	if end.IsZero() || o.shouldHibernate() {
		return interval
	}
	left := max(end.Sub(o.Now), immediately)
	if interval == 0 {
		return left
	}
	return min(interval, left)
}
