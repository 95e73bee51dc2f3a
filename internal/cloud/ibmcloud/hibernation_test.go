// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation/controller"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// changeTime is how long an instance takes to stop and to start in TestAClusterHibernatesAndResumes.
const changeTime = 2 * time.Second

// TestAClusterHibernatesAndResumes has the real controller and API server, which is the cluster's own too.
func TestAClusterHibernatesAndResumes(t *testing.T) {
	env, cloud := testenv.Start(t), startIBMCloud(t)
	c := cloud.newCluster()
	ids := c.Create(t, 3)
	cloud.change(func() { cloud.latency = changeTime })
	hibernated, resumed := testenv.HibernationStory{
		Platform:    hivev1.Platform{IBMCloud: &hivev1.IBMCloudPlatform{Region: goodRegion, CredentialsSecretRef: hivev1.LocalObjectReference{Name: testenv.CloudSecret}}},
		Metadata:    hivev1.ClusterMetadata{InfraID: c.infraID},
		Credentials: goodCredentials(),
		Setup: controller.Controller{
			Actuators: map[string]actuator.Actuator{"ibmcloud": cloud.actuator}, Clock: clock.RealClock{}, Metrics: controller.NewMetrics(),
		}.SetupWithManager,
		Check: func(state hivev1.PowerState) {
			want := map[hivev1.PowerState]string{hivev1.PowerStateHibernating: "stopped", hivev1.PowerStateRunning: "running"}[state]
			cloud.change(func() {
				for _, id := range ids {
					if got := cloud.instances[id].status; got != want {
						t.Errorf("%s: machine %s is %s, want %s", state, id, got, want)
					}
				}
			})
		},
	}.Run(t, env)
	t.Logf("of that %s and %s are Torpor's own: an instance takes %s", hibernated-changeTime, resumed-changeTime, changeTime)
}
