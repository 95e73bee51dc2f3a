// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// MayDial reports whether a cluster answered when it was last looked at, and is to run, or will run because it cannot hibernate. It is the
// only gate of controllers that write to clusters: they neither wait for one that is silent nor keep one awake.
func MayDial(cd *hivev1.ClusterDeployment, now time.Time) bool {
	return cd.DeletionTimestamp.IsZero() && (!mayBeStopped(cd, now) || isUnsupported(cd)) &&
		meta.IsStatusConditionFalse(cd.Status.Conditions, hivev1.ClusterUnreachableCondition)
}

// mayBeStopped does not wait for a report: machines may stop before the next one.
func mayBeStopped(cd *hivev1.ClusterDeployment, now time.Time) bool {
	timer, _ := ReadTimer(cd) // A timer that makes no sense stops nothing.
	spec := EffectivePowerState(cd.Spec.PowerState, cd.Status.Stops)
	return DesiredPowerState(spec, timer, cd.Status.Hibernation, now) == hivev1.PowerStateHibernating
}

// isUnsupported reports whether nothing will be stopped before another report.
func isUnsupported(cd *hivev1.ClusterDeployment) bool {
	c := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == hivev1.UnsupportedHibernationReason
}
