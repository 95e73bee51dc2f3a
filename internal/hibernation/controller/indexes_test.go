// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// refusesSecondOwner has two ClusterDeployments of the same machines, the younger of which wants another power state.
func refusesSecondOwner(t *testing.T, e *env) {
	t.Helper()
	first := e.newCluster(t, nil)
	first.awaitSettled(t, hivev1.PowerStateRunning)
	second := e.newCluster(t, func(r *clusterSetup) {
		r.machines, r.cd.Spec.ClusterMetadata.InfraID, r.cd.Spec.PowerState = 0, first.infraID, hivev1.PowerStateHibernating
	})
	second.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "Unknown", hivev1.InvalidSpecReason, []string{first.key.String(), first.infraID}})
	if err := e.cloud.ExpectState(t, first.infraID, "running"); err != nil {
		t.Errorf("expected the machines to be left to the older one: %v", err)
	}
	if err := e.Client.Delete(t.Context(), first.get(t)); err != nil {
		t.Fatal(err)
	}
	second.ids, second.infraID = first.ids, first.infraID
	second.awaitSettled(t, hivev1.PowerStateHibernating)
}
