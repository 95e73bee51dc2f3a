// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// MayDial reports whether a cluster answered when it was last looked at, and is to run, or will run because it cannot hibernate. It is the
// only gate of controllers that write to clusters: they neither wait for one that is silent nor keep one awake.
func MayDial(cd *hivev1.ClusterDeployment, now time.Time) bool {
	return cd.DeletionTimestamp.IsZero() && (!mayBeStopped(cd, now) || isLeftOn(cd, now)) &&
		meta.IsStatusConditionFalse(cd.Status.Conditions, hivev1.ClusterUnreachableCondition)
}

// mayBeStopped does not wait for a report: machines may stop before the next one.
func mayBeStopped(cd *hivev1.ClusterDeployment, now time.Time) bool {
	scheduled := stoprecord.FindScheduled(cd.Status.ScheduledStops, cd.Annotations, now)
	return desiredPowerStateOf(cd, scheduled, now) == hivev1.PowerStateHibernating
}

// isLeftOn reports whether nothing will be stopped before another report: a hibernation cannot be, or waits for the first sync.
func isLeftOn(cd *hivev1.ClusterDeployment, now time.Time) bool {
	c := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition)
	if c == nil || c.Status != metav1.ConditionFalse {
		return false
	}
	return c.Reason == hivev1.UnsupportedHibernationReason || c.Reason == hivev1.SyncSetsNotAppliedReason && now.Before(FirstSyncDeadline(cd))
}

// FirstSyncDeadline is until when a hibernation waits for the cluster's SyncSets to be applied for the first time; zero if nobody knows
// when the cluster was installed.
func FirstSyncDeadline(cd *hivev1.ClusterDeployment) time.Time {
	if cd.Status.InstalledTimestamp == nil {
		return time.Time{}
	}
	return cd.Status.InstalledTimestamp.Add(firstSyncWindow)
}
