// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hibernationcontroller "github.com/torpor-dev/torpor/internal/cluster/hibernation/controller"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestAClusterHibernatesAndResumes uses the real controller, one API server for the hub and the target cluster, and
// machines with both protocols.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	room := newRoom(t)
	room.latency = testenv.ChangeTime
	runStory(t, "double", mixedCluster{room.newCluster(t, false)})
}

// mixedCluster is a cluster in which the first machine has an IPMI controller, and the other machines have Redfish
// controllers.
type mixedCluster struct{ *simulatedCluster }

func (c mixedCluster) Create(t *testing.T, n int) []string {
	t.Helper()
	c.isIPMI = true
	ids := c.simulatedCluster.Create(t, 1)
	c.isIPMI = false
	return append(ids, c.simulatedCluster.Create(t, n-1)...)
}

func TestHibernationAtARealIPMI(t *testing.T) { runStory(t, "OpenIPMI", newSimulator(t)()) }

func runStory(t *testing.T, counterpart string, c actuatortest.Cloud) {
	t.Helper()
	testenv.HibernationStory{
		Counterpart: counterpart, Cluster: c,
		Platform: hivev1.Platform{BareMetal: &hivev1.BareMetalPlatform{CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Setup: hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"baremetal": c.Actuator()}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager,
	}.Run(t)
}
