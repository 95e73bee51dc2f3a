// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation/controller"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestAClusterHibernatesAndResumes has the real controller and API server, which is the cluster's own too. One of the machines is shut
// down from within before it hibernates.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	env, cloud := testenv.Start(t), startAzure(t)
	c := cloud.newCluster()
	ids := c.Create(t, 3)
	testenv.HibernationStory{
		Platform:    hivev1.Platform{Azure: &hivev1.AzurePlatform{Region: "westeurope", CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Metadata:    hivev1.ClusterMetadata{InfraID: "sleepy", Platform: &hivev1.ClusterPlatformMetadata{Azure: &hivev1.AzureClusterMetadata{ResourceGroupName: c.group}}},
		Credentials: goodCredentials(),
		Setup: controller.Controller{
			Actuators: map[string]actuator.Actuator{"azure": cloud.actuator}, Clock: clock.RealClock{}, Metrics: controller.NewMetrics(),
		}.SetupWithManager,
		Check: func(state hivev1.PowerState) {
			want := map[hivev1.PowerState]string{hivev1.PowerStateHibernating: "deallocated", hivev1.PowerStateRunning: "running"}[state]
			for _, id := range ids {
				if got := cloud.powerOf(id); got != want {
					t.Errorf("%s: machine %s is %s, want %s", state, id, got, want)
				}
			}
			if state == hivev1.PowerStateRunning {
				c.ShutDown(t, ids[2]) // It is paid for until it is deallocated.
			}
		},
	}.Run(t, env)
}

// powerOf returns the power state of a machine that is in no transition.
func (s *simulatedAzure) powerOf(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machines[id].power
}
