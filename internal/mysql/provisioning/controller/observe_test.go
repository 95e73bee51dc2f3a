// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
)

// TestARolloutWaitsForStoppedInstancesOnly covers values that stop instances, and values that do not. Clustering
// ignores the latter, so a rollout must not wait for their removal.
func TestARolloutWaitsForStoppedInstancesOnly(t *testing.T) {
	t.Parallel()
	for value, waits := range map[string]bool{"[1]": true, "[0,2]": true, "[]": false, "1": false, "": false} {
		cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mocov1beta2.StoppedInstancesAnnotation: value}}}
		seen := &observation{Observed: provisioning.Observed{Cluster: cluster}}
		if found := observedRollout(seen, time.Now()).StoppedInstances; found != waits {
			t.Errorf("%q: expected that a rollout waits: %t, found %t", value, waits, found)
		}
	}
}
