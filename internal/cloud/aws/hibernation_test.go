// SPDX-License-Identifier: Apache-2.0

package aws

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
	c := startCloud(t, "--start-latency", testenv.ChangeTime.String(), "--stop-latency", testenv.ChangeTime.String()).newCluster(t)
	testenv.HibernationStory{
		Counterpart: "double", Cluster: c,
		Platform: hivev1.Platform{AWS: &hivev1.AWSPlatform{Region: testenv.Region, CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Setup: controller.Controller{
			Actuators: map[string]actuator.Actuator{"aws": c.Actuator()}, Clock: clock.RealClock{}, Metrics: controller.NewMetrics(),
		}.SetupWithManager,
	}.Run(t)
}
