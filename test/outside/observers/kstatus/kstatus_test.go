// SPDX-License-Identifier: Apache-2.0

package kstatus

import (
	"testing"

	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/torpor-dev/torpor/test/outside/observers/statuses"
)

// TestKstatusReadsWhatIsAsWishedAsCurrent has one exception, which docs/gitops.md describes: Ready of a
// ClusterDeployment is Hive's condition, and False while the cluster hibernates. A MySQLCluster has no
// condition Ready, so kstatus does not wait for one.
func TestKstatusReadsWhatIsAsWishedAsCurrent(t *testing.T) {
	t.Parallel()
	want := map[string]status.Status{
		"a cluster that is new": status.CurrentStatus, "a cluster that runs": status.CurrentStatus, "a cluster that stops": status.InProgressStatus,
		"a cluster that sleeps": status.InProgressStatus, "a cluster that is stuck": status.FailedStatus,
		"a database that works": status.CurrentStatus, "a database that is down": status.CurrentStatus, "a database on its own": status.CurrentStatus,
		"a cluster that is to sleep now": status.InProgressStatus, "a database that is to be left alone now": status.CurrentStatus,
		"an app that runs": status.CurrentStatus, "an app that is stopped": status.CurrentStatus, "an app that starts": status.InProgressStatus,
		"an app of which more is asked": status.InProgressStatus,
		"a schedule that is asleep":     status.CurrentStatus, "a schedule that needs somebody": status.FailedStatus,
		"an adapter that runs": status.CurrentStatus, "an adapter whose kind is not installed": status.InProgressStatus, "an adapter that begins": status.InProgressStatus, "an adapter without rights": status.InProgressStatus,
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
