// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation/controller"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestAClusterHibernatesAndResumes has the real controller and API server, which is the cluster's own too.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	env, engine := testenv.Start(t), startEngine(t)
	c := engine.newCluster()
	ids := c.Create(t, 3)
	c.story(func(state hivev1.PowerState) {
		want := map[hivev1.PowerState]string{hivev1.PowerStateHibernating: "exited", hivev1.PowerStateRunning: "running"}[state]
		engine.change(func() {
			for _, id := range ids {
				if got := engine.containers[id].state; got != want {
					t.Errorf("%s: container %s is %s, want %s", state, id, got, want)
				}
			}
			if state == hivev1.PowerStateHibernating {
				engine.containers[ids[0]].state = "paused" // It counts as off but for its memory, and is stopped again.
			}
		})
	}).Run(t, env)
}

// story is that of a cluster whose nodes are containers of the engine.
func (c *simulatedCluster) story(check func(hivev1.PowerState)) testenv.HibernationStory {
	return testenv.HibernationStory{
		Platform: hivev1.Platform{Containers: &hivev1.ContainersPlatform{
			Engine: c.Target().Cloud, CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret},
		}},
		Metadata:    hivev1.ClusterMetadata{InfraID: c.infraID},
		Credentials: c.credentials,
		Setup: controller.Controller{
			Actuators: map[string]actuator.Actuator{"containers": c.actuator}, Clock: clock.RealClock{}, Metrics: controller.NewMetrics(),
		}.SetupWithManager,
		Check: check,
	}
}
