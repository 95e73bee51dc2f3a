// SPDX-License-Identifier: Apache-2.0

package stoppable

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// mysqlClusters are asleep when no Pod of theirs is left, as with spec.offline. A stop of clustering or
// reconciliation does not count: the servers keep running without their controllers.
func mysqlClusters() Kind {
	return Kind{
		GVK:     mocov1beta2.MySQLClusterKind(),
		New:     func() Object { return &mocov1beta2.MySQLCluster{} },
		NewList: func() List { return &mocov1beta2.MySQLClusterList{} },
		ReadState: func(obj Object, now time.Time) State {
			if c, ok := obj.(*mocov1beta2.MySQLCluster); ok {
				return readMySQLCluster(c, now)
			}
			return State{}
		},
	}
}

func readMySQLCluster(c *mocov1beta2.MySQLCluster, now time.Time) State {
	c = restoreStatus(c)
	isScheduled := stoprecord.FindScheduled(c.Status.ScheduledStops, c.Annotations, now) != nil
	_, hasPrimary := c.Status.Primary()
	s := State{
		IsStoppedWithoutSlumbers: c.Spec.Offline, ScheduledStops: stoprecord.ListScheduled(c.Status.ScheduledStops, c.Annotations),
		IsAsleep: c.Status.OfflineSince != nil,
	}
	available := meta.FindStatusCondition(c.Status.Conditions, mocov1beta2.AvailableCondition)
	s.IsAwake = !s.IsAsleep && available != nil && available.Status == metav1.ConditionTrue && !isScheduled
	if available != nil && !s.IsAsleep && !s.IsAwake {
		s.Message = available.Reason
	}
	switch isWorkedOn := c.ClusteringStopped() || c.ReconciliationStopped(); {
	case !c.DeletionTimestamp.IsZero():
	case isWorkedOn && !isScheduled:
		// A user works on the servers or their environment by hand. They are not stopped, and no wave waits for them.
	default:
		s.IsStoppable = hasPrimary || isScheduled // A new cluster is left alone until it has data.
	}
	if c.ReconciliationStopped() {
		s.IsStoppedWithoutSlumbers, s.Message = true, mocov1beta2.ReconciliationInactiveReason // The cluster wakes when reconciliation is started.
	}
	return s
}
