// SPDX-License-Identifier: Apache-2.0

package aws

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
	c := startCloud(t, "--start-latency", testenv.ChangeTime.String(), "--stop-latency", testenv.ChangeTime.String()).newCluster(t)
	return testenv.HibernationStory{
		Counterpart: "double", Cluster: c,
		Platform: hivev1.Platform{AWS: &hivev1.AWSPlatform{Region: testenv.Region, CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Setup: hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"aws": c.Actuator()}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager,
	}, c
}

func TestAClusterHibernatesAndResumes(t *testing.T) {
	story, _ := newStory(t)
	story.Run(t)
}

// TestMachinesOfAnAutoScalingGroupAreNotStopped uses a cloud with a group that replaces stopped members.
func TestMachinesOfAnAutoScalingGroupAreNotStopped(t *testing.T) {
	story, c := newStory(t)
	story.RunWithMembers(t, c.JoinGroup)
	if calls := c.cloud.countCalls(t); calls["StopInstances"] > 0 || calls["TerminateInstances"] > 0 {
		t.Errorf("expected no order to stop a machine, found the calls %v", calls)
	}
}
