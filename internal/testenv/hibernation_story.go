// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// CloudSecret is the Secret of the account of a HibernationStory.
const CloudSecret = "cloud"

// HibernationStory is a cluster at a cloud that hibernates and resumes. The API server of the hub is the cluster's own, too, with one
// node that lives.
type HibernationStory struct {
	// Platform is where the machines are; its credentials are in CloudSecret.
	Platform hivev1.Platform
	// Metadata is what the machines are found by; the kubeconfig is filled in.
	Metadata hivev1.ClusterMetadata
	// Credentials is what the Secret has.
	Credentials map[string][]byte
	// Setup sets up the controller of hibernation.
	Setup func(manager.Manager) error
	// Check looks at the machines when the cluster says that it is in a state.
	Check func(hivev1.PowerState)
}

// Run runs the story, and logs for how long each change took.
func (s HibernationStory) Run(t *testing.T, env *Environment) (hibernated, resumed time.Duration) {
	t.Helper()
	name := client.ObjectKey{Namespace: env.CreateNamespace(t), Name: "sleepy"}
	kubeconfig, err := os.ReadFile(env.KubeconfigPath(t))
	ExpectNoError(t, err)
	for secret, data := range map[string]map[string][]byte{CloudSecret: s.Credentials, "admin": {"kubeconfig": kubeconfig}} {
		env.ExpectCreated(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: secret}, Data: data})
	}
	cd := BuildClusterDeployment(name, "", "")
	cd.Spec.Platform, cd.Spec.ClusterMetadata, cd.Spec.PowerState = s.Platform, s.Metadata.DeepCopy(), hivev1.PowerStateRunning
	cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name = "admin"
	env.ExpectCreated(t, cd)
	lease := createLivingNode(t, env)
	StartManager(t, env, s.Setup)
	s.awaitState(t, env, cd, lease, hivev1.PowerStateRunning)
	hibernated = s.awaitState(t, env, cd, lease, hivev1.PowerStateHibernating)
	resumed = s.awaitState(t, env, cd, lease, hivev1.PowerStateRunning)
	t.Logf("hibernated in %s and resumed in %s", hibernated.Round(time.Millisecond), resumed.Round(time.Millisecond))
	return hibernated, resumed
}

// awaitState asks for a state, and returns when the cluster says that it is in it.
func (s HibernationStory) awaitState(t *testing.T, env *Environment, cd *hivev1.ClusterDeployment, lease *coordinationv1.Lease, want hivev1.PowerState) time.Duration {
	t.Helper()
	asked := time.Now()
	ExpectPatched(t, env, cd, func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = want })
	Eventually(t, "the cluster is "+string(want), func() error {
		renewed := lease.DeepCopy()
		renewed.Spec.RenewTime = new(metav1.NowMicro())
		if err := env.Client.Patch(t.Context(), renewed, client.MergeFrom(lease)); err != nil {
			return fmt.Errorf("renew the lease of the node: %w", err)
		}
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd); err != nil {
			return fmt.Errorf("get: %w", err)
		}
		return ErrorIf(cd.Status.PowerState != string(want), "found %q: %+v", cd.Status.PowerState, cd.Status.Conditions)
	})
	took := time.Since(asked)
	s.Check(want)
	return took
}

// createLivingNode makes the one node that the cluster has, and the lease by which it shows that it lives.
func createLivingNode(t *testing.T, env *Environment) *coordinationv1.Lease {
	t.Helper()
	const name = "sleepy-node"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	Eventually(t, "a node with a lease", func() error {
		if err := env.Client.Create(t.Context(), node); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create the node: %w", err)
		}
		return client.IgnoreAlreadyExists(env.Client.Create(t.Context(), lease))
	})
	return lease
}
