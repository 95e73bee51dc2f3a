// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"os"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	cloud.change(func() { cloud.servers[ids[2]].status = "SHELVED_OFFLOADED" })
	name := client.ObjectKey{Namespace: env.CreateNamespace(t), Name: "sleepy"}
	kubeconfig, err := os.ReadFile(env.KubeconfigPath(t))
	testenv.ExpectNoError(t, err)
	for secret, data := range map[string]map[string][]byte{"cloud": cloud.credentials(""), "admin": {"kubeconfig": kubeconfig}} {
		testenv.ExpectNoError(t, env.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: secret}, Data: data}))
	}
	cd := testenv.BuildClusterDeployment(name, "", "admin")
	cd.Spec.Platform = hivev1.Platform{OpenStack: &hivev1.OpenStackPlatform{Cloud: "fleet", CredentialsSecretRef: hivev1.LocalObjectReference{Name: "cloud"}}}
	cd.Spec.ClusterMetadata.InfraID = c.infraID
	cd.Spec.PowerState = hivev1.PowerStateHibernating
	testenv.ExpectNoError(t, env.Client.Create(t.Context(), cd))
	lease := createNode(t, env)
	testenv.StartManager(t, env, controller.Controller{
		Actuators: map[string]actuator.Actuator{"openstack": cloud.actuator}, Clock: clock.RealClock{}, Metrics: controller.NewMetrics(),
	}.SetupWithManager)

	for _, row := range []struct {
		state  hivev1.PowerState
		status string
	}{{hivev1.PowerStateHibernating, "SHUTOFF"}, {hivev1.PowerStateRunning, "ACTIVE"}} {
		before := cd.DeepCopy()
		cd.Spec.PowerState = row.state
		testenv.ExpectNoError(t, env.Client.Patch(t.Context(), cd, client.MergeFrom(before)))
		testenv.Eventually(t, "the cluster is "+string(row.state), func() error {
			renewed := lease.DeepCopy()
			renewed.Spec.RenewTime = new(metav1.NowMicro())
			if err := env.Client.Patch(t.Context(), renewed, client.MergeFrom(lease)); err != nil {
				return err
			}
			if err := env.Client.Get(t.Context(), name, cd); err != nil {
				return err
			}
			if cd.Status.PowerState != string(row.state) {
				return fmt.Errorf("found %q: %+v", cd.Status.PowerState, cd.Status.Conditions)
			}
			return nil
		})
		for _, id := range ids {
			if got := cloud.statusOf(id); got != row.status && (row.status == "ACTIVE" || got != "SHELVED_OFFLOADED") {
				t.Errorf("%s: machine %s is %s, want %s", row.state, id, got, row.status)
			}
		}
	}
}

// statusOf returns the status of a server.
func (s *simulatedOpenStack) statusOf(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[id].status
}

// createNode makes the one node that the cluster has, and the lease by which it shows that it lives.
func createNode(t *testing.T, env *testenv.Environment) *coordinationv1.Lease {
	t.Helper()
	const name = "sleepy-node"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	testenv.Eventually(t, "a node with a lease", func() error {
		if err := env.Client.Create(t.Context(), node); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		return client.IgnoreAlreadyExists(env.Client.Create(t.Context(), lease))
	})
	return lease
}
