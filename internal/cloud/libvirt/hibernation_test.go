// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hibernationcontroller "github.com/torpor-dev/torpor/internal/cluster/hibernation/controller"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestAClusterHibernatesAndResumes uses the real controller and one API server for the hub and the target cluster. The
// guests turn off slowly.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	daemon := startDaemon(t)
	daemon.latency = testenv.ChangeTime
	runStory(t, "double", daemon.newCluster())
	if calls := daemon.countCalls(); calls[procDomainDestroy] > 0 {
		t.Errorf("%d guests lost their power, want none", calls[procDomainDestroy])
	}
}

func TestHibernationAtARealLibvirtd(t *testing.T) {
	runStory(t, "libvirtd", startLibvirtd(t).newCluster())
}

func runStory(t *testing.T, counterpart string, c actuatortest.Cloud) {
	t.Helper()
	testenv.HibernationStory{
		Counterpart: counterpart, Cluster: c, Platform: hivev1.Platform{Libvirt: &hivev1.LibvirtPlatform{CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Setup: hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"libvirt": c.Actuator()}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager,
	}.Run(t)
}
