// SPDX-License-Identifier: Apache-2.0

package openstack

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
// user shelves a server during the hibernation, and the resume unshelves this server.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	cloud := startOpenStack(t)
	cloud.latency = testenv.ChangeTime
	runStory(t, "double", cloud.newCluster(), "", func(state hivev1.PowerState, ids []string) {
		if state == hivev1.PowerStateHibernating {
			cloud.Change(func() { cloud.servers[ids[2]].status = "SHELVED_OFFLOADED" })
		}
	})
}

func TestHibernationAtARealNova(t *testing.T) {
	runStory(t, "nova", novaCluster{startNova(t).newCluster()}, "", nil)
}

func TestHibernationByShelvingAtARealNova(t *testing.T) {
	runStory(t, "nova, shelved", novaCluster{startNova(t).newShelvedCluster().simulatedCluster}, hivev1.OpenStackShelve, nil)
}

func runStory(t *testing.T, counterpart string, c actuatortest.Cloud, method hivev1.OpenStackStopMethod, disturb func(hivev1.PowerState, []string)) {
	t.Helper()
	testenv.HibernationStory{
		Counterpart: counterpart, Cluster: c,
		Platform: hivev1.Platform{OpenStack: &hivev1.OpenStackPlatform{Cloud: "fleet", StopMethod: method, CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Setup: hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"openstack": c.Actuator()}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager,
		Disturb: disturb,
	}.Run(t)
}
