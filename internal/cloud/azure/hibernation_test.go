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
	cloud := startAzure(t)
	cloud.latency = testenv.ChangeTime
	c := cloud.newCluster()
	testenv.HibernationStory{
		Counterpart: "double", Cluster: c, Platform: hivev1.Platform{Azure: &hivev1.AzurePlatform{Region: "westeurope", CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Metadata: hivev1.ClusterMetadata{InfraID: "sleepy", Platform: &hivev1.ClusterPlatformMetadata{Azure: &hivev1.AzureClusterMetadata{ResourceGroupName: c.group}}},
		Setup: controller.Controller{
			Actuators: map[string]actuator.Actuator{"azure": cloud.actuator}, Clock: clock.RealClock{}, Metrics: controller.NewMetrics(),
		}.SetupWithManager,
		Disturb: func(state hivev1.PowerState, ids []string) {
			if state == hivev1.PowerStateRunning {
				c.ShutDown(t, ids[2]) // It is paid for until it is deallocated.
			}
		},
	}.Run(t)
}
