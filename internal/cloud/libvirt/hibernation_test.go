// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation/controller"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestAClusterHibernatesAndResumes has the real controller and API server, which is the cluster's own too. The guests
// take their time.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	env, daemon := testenv.Start(t), startDaemon(t)
	c := daemon.newCluster()
	ids := c.Create(t, 3)
	testenv.HibernationStory{
		Platform:    hivev1.Platform{Libvirt: &hivev1.LibvirtPlatform{CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Metadata:    hivev1.ClusterMetadata{InfraID: c.infraID},
		Credentials: c.Target().Credentials,
		Setup: controller.Controller{
			Actuators: map[string]actuator.Actuator{"libvirt": daemon.actuator}, Clock: clock.RealClock{}, Metrics: controller.NewMetrics(),
		}.SetupWithManager,
		Check: func(state hivev1.PowerState) {
			want := map[hivev1.PowerState]uint32{hivev1.PowerStateHibernating: stateShutOff, hivev1.PowerStateRunning: stateRunning}[state]
			for _, id := range ids {
				daemon.change(func() {
					if got := daemon.find(id).state; got != want {
						t.Errorf("%s: domain %s is in state %d, want %d", state, id, got, want)
					}
				})
			}
		},
	}.Run(t, env)
	if calls := daemon.countCalls(); calls[procDomainDestroy] > 0 {
		t.Errorf("%d guests were cut off, want none", calls[procDomainDestroy])
	}
}
