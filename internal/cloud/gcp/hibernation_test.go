// SPDX-License-Identifier: Apache-2.0

package gcp

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
	cloud := startGCP(t)
	cloud.latency = testenv.ChangeTime
	c := cloud.newCluster()
	return testenv.HibernationStory{
		Counterpart: "double", Cluster: c,
		Platform: hivev1.Platform{GCP: &hivev1.GCPPlatform{
			Region: "europe-west3", CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret},
		}},
		Setup: hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"gcp": cloud.actuator}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager,
	}, c
}

// TestAClusterHibernatesAndResumes uses instances on which a tool has set the metadata key of managed groups.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	story, c := newStory(t)
	story.Disturb = func(_ hivev1.PowerState, ids []string) { c.setMetadata(ids[0], creatorKey, "terraform") }
	story.Run(t)
}

func TestMembersOfAManagedGroupAreNotStopped(t *testing.T) {
	story, c := newStory(t)
	story.RunWithMembers(t, c.JoinGroup)
}
