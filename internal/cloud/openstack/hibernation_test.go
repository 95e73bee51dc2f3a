// SPDX-License-Identifier: Apache-2.0

package openstack

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
	env, cloud := testenv.Start(t), startOpenStack(t)
	c := cloud.newCluster()
	ids := c.Create(t, 3)
	testenv.HibernationStory{
		Platform:    hivev1.Platform{OpenStack: &hivev1.OpenStackPlatform{Cloud: "fleet", CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Metadata:    hivev1.ClusterMetadata{InfraID: c.infraID},
		Credentials: cloud.credentials(""),
		Setup: controller.Controller{
			Actuators: map[string]actuator.Actuator{"openstack": cloud.actuator}, Clock: clock.RealClock{}, Metrics: controller.NewMetrics(),
		}.SetupWithManager,
		Check: func(state hivev1.PowerState) {
			want := map[hivev1.PowerState]string{hivev1.PowerStateHibernating: "SHUTOFF", hivev1.PowerStateRunning: "ACTIVE"}[state]
			for _, id := range ids {
				if got := cloud.statusOf(id); got != want {
					t.Errorf("%s: machine %s is %s, want %s", state, id, got, want)
				}
			}
			if state == hivev1.PowerStateHibernating {
				// The resume has one to unshelve.
				cloud.change(func() { cloud.servers[ids[2]].status = "SHELVED_OFFLOADED" })
			}
		},
	}.Run(t, env)
}

// statusOf returns the status of a server.
func (s *simulatedOpenStack) statusOf(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[id].status
}
