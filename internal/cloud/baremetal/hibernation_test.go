// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation/controller"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestAClusterHibernatesAndResumes has the real controller and API server, which is the cluster's own too, and machines of both protocols.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	env, room := testenv.Start(t), newRoom(t)
	c := room.newCluster(t, false)
	ids := c.Create(t, 2)
	c.isIPMI = true
	ids = append(ids, c.Create(t, 2)...)
	story(room.actuator, c.Target(), func(state hivev1.PowerState) {
		want := map[hivev1.PowerState]actuator.MachineState{hivev1.PowerStateHibernating: actuator.Stopped, hivev1.PowerStateRunning: actuator.Running}[state]
		room.change(func() {
			for _, id := range ids {
				if got := room.machines[id].state; got != want {
					t.Errorf("%s: machine %s is %s, want %s", state, id, got, want)
				}
			}
		})
	}).Run(t, env)
}

// story is that of a cluster of the target's machines.
func story(a *Actuator, target actuator.Target, check func(hivev1.PowerState)) testenv.HibernationStory {
	platform := &hivev1.BareMetalPlatform{CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}
	for _, m := range target.Machines {
		platform.Machines = append(platform.Machines, hivev1.BareMetalMachine{Name: m.Name, BMC: m.Address})
	}
	return testenv.HibernationStory{
		Platform: hivev1.Platform{BareMetal: platform}, Metadata: hivev1.ClusterMetadata{InfraID: "metal"}, Credentials: target.Credentials,
		Setup: controller.Controller{
			Actuators: map[string]actuator.Actuator{"baremetal": a}, Clock: clock.RealClock{}, Metrics: controller.NewMetrics(),
		}.SetupWithManager,
		Check: check,
	}
}
