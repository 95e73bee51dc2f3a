// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hibernationcontroller "github.com/torpor-dev/torpor/internal/cluster/hibernation/controller"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// newStory returns a story with the real controller and one API server for the hub and the target cluster.
func newStory(t *testing.T) (testenv.HibernationStory, *simulatedCluster) {
	t.Helper()
	cloud := startAzure(t)
	cloud.latency = testenv.ChangeTime
	c := cloud.newCluster()
	return testenv.HibernationStory{
		Counterpart: "double", Cluster: c,
		Platform: hivev1.Platform{Azure: &hivev1.AzurePlatform{
			Region: "westeurope", CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret},
		}},
		Metadata: hivev1.ClusterMetadata{
			InfraID: "sleepy", Platform: &hivev1.ClusterPlatformMetadata{Azure: &hivev1.AzureClusterMetadata{ResourceGroupName: c.group}},
		},
		Setup: hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"azure": cloud.actuator}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager,
	}, c
}

// TestAClusterHibernatesAndResumes shuts down a machine from its guest before the cluster hibernates.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	story, c := newStory(t)
	story.Disturb = func(state hivev1.PowerState, ids []string) {
		if state == hivev1.PowerStateRunning {
			c.ShutDown(t, ids[2]) // The machine is billed until it is deallocated.
		}
	}
	story.Run(t)
}

func TestMembersOfAScaleSetAreNotStopped(t *testing.T) {
	story, c := newStory(t)
	story.RunWithMembers(t, c.JoinGroup)
	c.expectNoReplacements(t)
}

// TestInstancesOfAUniformScaleSetKeepTheClusterRunning uses a machine and a scale set, such as an agent pool of AKS.
// Without the scale set, the machine would be stopped.
func TestInstancesOfAUniformScaleSetKeepTheClusterRunning(t *testing.T) {
	story, c := newStory(t)
	story.RunWithMembers(t, c.joinUniformSet)
	c.expectNoReplacements(t)
	testenv.ExpectEqual(t, "orders to stop machines", 0, c.CountCalls()[deallocate])
}
