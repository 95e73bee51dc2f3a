// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hibernationcontroller "github.com/torpor-dev/torpor/internal/cluster/hibernation/controller"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestAClusterHibernatesAndResumes uses the real controller and one API server for the hub and the target cluster. A
// container is paused during the hibernation. A paused container counts as off but occupies memory, so it is stopped
// again.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	engine := startEngine(t)
	c := engine.newCluster()
	runStory(t, "double", c, c.infraID, func(state hivev1.PowerState, ids []string) {
		if state == hivev1.PowerStateHibernating {
			engine.Change(func() { engine.containers[ids[0]].state = "paused" })
		}
	})
}

func TestHibernationAtARealDocker(t *testing.T) {
	c := dockerCluster{startDocker(t).newCluster()}
	runStory(t, "Docker", c, c.infraID, nil)
}

func runStory(t *testing.T, counterpart string, c actuatortest.Cloud, infraID string, disturb func(hivev1.PowerState, []string)) {
	t.Helper()
	testenv.HibernationStory{
		Counterpart: counterpart, Cluster: c, Metadata: hivev1.ClusterMetadata{InfraID: infraID},
		Platform: hivev1.Platform{Containers: &hivev1.ContainersPlatform{Engine: c.Target().Cloud, CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Setup: hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"containers": c.Actuator()}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager,
		Disturb: disturb,
	}.Run(t)
}
