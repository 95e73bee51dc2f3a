// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hibernationcontroller "github.com/torpor-dev/torpor/internal/cluster/hibernation/controller"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestAClusterHibernatesAndResumes uses the real controller and an API server that serves as the target cluster's too.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	cloud := startIBMCloud(t)
	cloud.latency = testenv.ChangeTime
	testenv.HibernationStory{
		Counterpart: "double", Cluster: cloud.newCluster(), Platform: hivev1.Platform{IBMCloud: &hivev1.IBMCloudPlatform{Region: goodRegion, CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Setup: hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"ibmcloud": cloud.actuator}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager,
	}.Run(t)
}
