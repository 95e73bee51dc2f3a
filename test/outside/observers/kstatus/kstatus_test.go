// SPDX-License-Identifier: Apache-2.0

package kstatus

import (
	"testing"

	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/torpor-dev/torpor/test/outside/observers/statuses"
)

// TestKstatusReportsDesiredStateAsCurrent has one exception, which docs/gitops.md describes: Ready of a
// ClusterDeployment is Hive's condition, and False while the cluster hibernates. A MySQLCluster has no
// condition Ready, so kstatus does not wait for one.
func TestKstatusReportsDesiredStateAsCurrent(t *testing.T) {
	t.Parallel()
	want := map[string]status.Status{
		"a new cluster": status.CurrentStatus, "a running cluster": status.CurrentStatus, "a stopping cluster": status.InProgressStatus,
		"a hibernating cluster": status.InProgressStatus, "a cluster that fails to stop": status.FailedStatus,
		"a healthy database": status.CurrentStatus, "a database without a primary": status.CurrentStatus, "a database with clustering stopped": status.CurrentStatus,
		"a cluster with an unobserved stop": status.InProgressStatus, "a database with an unobserved stop": status.CurrentStatus,
		"a running app": status.CurrentStatus, "a stopped app": status.CurrentStatus, "a starting app": status.InProgressStatus,
		"an app with an unobserved change":   status.InProgressStatus,
		"a Slumber whose objects are asleep": status.CurrentStatus, "a stalled Slumber": status.FailedStatus,
		"a ClusterSlumber that falls asleep": status.InProgressStatus,
		"a running StopAdapter":              status.CurrentStatus, "a StopAdapter of a kind that is not installed": status.InProgressStatus, "a new StopAdapter": status.InProgressStatus, "a StopAdapter without rights": status.InProgressStatus,
	}
	all, err := statuses.List()
	if err != nil {
		t.Fatal(err)
	}
	for name, obj := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := status.Compute(obj)
			if err != nil || found.Status != want[name] {
				t.Errorf("expected %s, found %+v (%v)", want[name], found, err)
			}
		})
	}
}
