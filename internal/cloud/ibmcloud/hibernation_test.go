// SPDX-License-Identifier: Apache-2.0

package ibmcloud

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
	cloud := startIBMCloud(t)
	cloud.latency = testenv.ChangeTime
	c := cloud.newCluster()
	return testenv.HibernationStory{
		Counterpart: "double", Cluster: c,
		Platform: hivev1.Platform{IBMCloud: &hivev1.IBMCloudPlatform{
			Region: goodRegion, CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret},
		}},
		Setup: hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"ibmcloud": cloud.actuator}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager,
	}, c
}

func TestAClusterHibernatesAndResumes(t *testing.T) {
	story, _ := newStory(t)
	story.Run(t)
}

// TestMembersOfAnInstanceGroupAreNotStopped uses a cloud with a group that replaces stopped members.
func TestMembersOfAnInstanceGroupAreNotStopped(t *testing.T) {
	story, c := newStory(t)
	story.RunWithMembers(t, c.JoinGroup)
	if stops := c.CountCalls()[stop]; stops != 0 {
		t.Errorf("expected no stop, found %d", stops)
	}
}
