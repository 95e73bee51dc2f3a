// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// MayDial reports whether a cluster is not being deleted, responded to the last probe, and either should run or is left
// on although it should hibernate. Controllers that write to clusters rely on this check alone: they neither wait for
// an unreachable cluster nor delay a stop.
func MayDial(cd *hivev1.ClusterDeployment, now time.Time) bool {
	return cd.DeletionTimestamp.IsZero() && (!mayBeStopped(cd, now) || isLeftOn(cd, now)) &&
		meta.IsStatusConditionFalse(cd.Status.Conditions, hivev1.ClusterUnreachableCondition)
}

// mayBeStopped reports whether the cluster should hibernate. It does not wait until the status reports this, because
// machines may stop before the next report.
func mayBeStopped(cd *hivev1.ClusterDeployment, now time.Time) bool {
	scheduled := stoprecord.FindScheduled(cd.Status.ScheduledStops, cd.Annotations, now)
	return desiredPowerStateOf(cd, scheduled, now) == hivev1.PowerStateHibernating
}

// isLeftOn reports whether no machine is stopped before the next report, because hibernation is impossible, is refused,
// or waits for the first sync.
func isLeftOn(cd *hivev1.ClusterDeployment, now time.Time) bool {
	c := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition)
	if c == nil || c.Status != metav1.ConditionFalse {
		return false
	}
	isKept := c.Reason == hivev1.UnsupportedHibernationReason || c.Reason == hivev1.RefusedHibernationReason
	return isKept || c.Reason == hivev1.SyncSetsNotAppliedReason && now.Before(FirstSyncDeadline(cd))
}

// FirstSyncDeadline returns the latest time until which a hibernation waits for the first application of the cluster's
// SyncSets. It is zero if the installation time is unknown.
func FirstSyncDeadline(cd *hivev1.ClusterDeployment) time.Time {
	if cd.Status.InstalledTimestamp == nil {
		return time.Time{}
	}
	return cd.Status.InstalledTimestamp.Add(firstSyncWindow)
}
