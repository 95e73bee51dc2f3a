// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"k8s.io/apimachinery/pkg/api/meta"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// MayDial reports whether a cluster answered when it was last looked at, and is to run. It is the only gate of controllers that write
// to clusters: they neither wait for one that is silent nor keep one awake.
func MayDial(cd *hivev1.ClusterDeployment) bool {
	return cd.DeletionTimestamp.IsZero() && EffectivePowerState(cd.Spec.PowerState, cd.Status.Stops) != hivev1.PowerStateHibernating &&
		meta.IsStatusConditionFalse(cd.Status.Conditions, hivev1.ClusterUnreachableCondition)
}
