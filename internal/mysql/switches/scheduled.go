// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"time"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// ApplyScheduled returns a copy of the cluster with spec.offline set to true if a Slumber stops the cluster at a given
// time. Otherwise it returns the cluster itself. The copy is never written to the API server.
func ApplyScheduled(cluster *mocov1beta2.MySQLCluster, now time.Time) *mocov1beta2.MySQLCluster {
	if cluster.Spec.Offline || stoprecord.FindScheduled(cluster.Status.ScheduledStops, cluster.Annotations, now) == nil {
		return cluster
	}
	wanted := cluster.DeepCopy()
	wanted.Spec.Offline = true
	return wanted
}

// DescribeScheduled describes the Slumber that stops a cluster, with the reason and the end time. It returns "" if no
// Slumber stops the cluster.
func DescribeScheduled(cluster *mocov1beta2.MySQLCluster, now time.Time) string {
	scheduled := stoprecord.FindScheduled(cluster.Status.ScheduledStops, cluster.Annotations, now)
	if scheduled == nil {
		return ""
	}
	return stoprecord.Records(scheduled.Stops).Describe()
}
