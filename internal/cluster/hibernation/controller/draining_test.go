// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestWorkersAreDrained uses a real API server as the target, which implements PodDisruptionBudgets. The pods are not
// run.
func TestWorkersAreDrained(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	e.createNode(t, "master", func(n *corev1.Node) { n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""} })
	e.createNode(t, "by-hand", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	s := e.newCluster(t, func(r *clusterSetup) { r.cd.Annotations = map[string]string{hivev1.DrainBudgetAnnotation: "1h"} })
	s.awaitSettled(t, hivev1.PowerStateRunning)
	e.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "default"}})
	web, other := s.createPod(t, "web", readyNodeName, "ReplicaSet"), s.createPod(t, "other", "by-hand", "StatefulSet")
	guarded, bare := s.createPod(t, "guarded", readyNodeName, "ReplicaSet"), s.createPod(t, "bare", readyNodeName, "")
	daemon, control := s.createPod(t, "daemon", readyNodeName, "DaemonSet"), s.createPod(t, "control", "master", "ReplicaSet")
	s.forbidEviction(t, guarded)

	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.DrainingWorkersReason, []string{"for at most 1h"}})
	for _, gone := range []*corev1.Pod{web, other} {
		testenv.Eventually(t, gone.Name+" is evicted", func() error { return s.expectGone(t, gone) })
	}
	for _, kept := range []*corev1.Pod{guarded, bare, daemon, control} {
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil || kept.DeletionTimestamp != nil {
			t.Errorf("expected %s to stay, found %v", kept.Name, err)
		}
	}
	testenv.ExpectEqual(t, "cordoned nodes", map[string]string{readyNodeName: "for the drain", "by-hand": "by a user", "master": "not"}, e.listCordons(t))
	testenv.ExpectNoError(t, s.cloud.ExpectState(t, s.infraID, "running"))

	s.patch(t, requestingUser, fmt.Sprintf(`{"metadata":{"annotations":{%q:"1ms"}}}`, hivev1.DrainBudgetAnnotation))
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	drain := s.get(t).Status.Hibernation.Drain
	for _, part := range []string{"pods that PodDisruptionBudgets protect from eviction: " + s.key.Namespace + "/guarded", "not evicted: " + s.key.Namespace + "/bare"} {
		if drain == nil || drain.EndedAt == nil || !strings.Contains(drain.Left, part) {
			t.Errorf("expected a drain that left %q, found %+v", part, drain)
		}
	}
	s.expectTold(t, "the workers were not drained completely; remaining: ")

	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	testenv.ExpectEqual(t, "cordoned nodes", map[string]string{readyNodeName: "not", "by-hand": "by a user", "master": "not"}, e.listCordons(t))
}

// TestADrainThatTheClusterRefusesEndsAtOnce uses kubeconfigs of users that lack a right, and a budget that exceeds
// the time limit of the test.
func TestADrainThatTheClusterRefusesEndsAtOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	const mayNot = "the kubeconfig's user lacks a permission (403)"
	read := rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{"", "coordination.k8s.io", "certificates.k8s.io"}, Resources: []string{"nodes", "leases", "certificatesigningrequests"}}
	readPods := rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	cordon := rbacv1.PolicyRule{Verbs: []string{"patch"}, APIGroups: []string{""}, Resources: []string{"nodes"}}
	evict := rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods/eviction"}}
	for name, row := range map[string]struct {
		rules []rbacv1.PolicyRule
		left  []string
	}{
		"drain by a user that may not evict ends and is reported":     {[]rbacv1.PolicyRule{read, readPods, cordon}, []string{"nodes or pods cannot be changed: " + mayNot, "pods that the cluster refuses to evict: NAMESPACE/web"}},
		"drain by a user that may not cordon ends and is reported":    {[]rbacv1.PolicyRule{read, readPods, evict}, []string{"nodes or pods cannot be changed: " + mayNot, "nodes that the cluster refuses to cordon: " + readyNodeName, "not evicted yet: NAMESPACE/web"}},
		"drain by a user that may not list pods ends and is reported": {[]rbacv1.PolicyRule{read, cordon, evict}, []string{"pods cannot be read: " + mayNot}},
	} {
		t.Run(name, func(t *testing.T) { // The cases run one after the other, because they share the node.
			s := e.newCluster(t, func(r *clusterSetup) {
				r.cd.Annotations = map[string]string{hivev1.DrainBudgetAnnotation: "1h"}
				r.kubeconfig = e.kubeconfigOf(t, r.cd.Namespace, row.rules)
			})
			s.awaitSettled(t, hivev1.PowerStateRunning)
			e.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "default"}})
			web := s.createPod(t, "web", readyNodeName, "ReplicaSet")
			s.setPowerState(t, hivev1.PowerStateHibernating)
			s.awaitSettled(t, hivev1.PowerStateHibernating)
			drain := s.get(t).Status.Hibernation.Drain
			for _, part := range row.left {
				if part = strings.ReplaceAll(part, "NAMESPACE", s.key.Namespace); drain == nil || drain.EndedAt == nil || !strings.Contains(drain.Left, part) {
					t.Errorf("expected a drain that left %q, found %+v", part, drain)
				}
			}
			s.expectTold(t, "the workers were not drained completely; remaining: ")
			testenv.ExpectNoError(t, e.Client.Delete(t.Context(), web))
			e.uncordon(t)
		})
	}
}

// uncordon restores the node after a drain without a resume.
func (e *env) uncordon(t *testing.T) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: readyNodeName}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}},"spec":{"unschedulable":null,"taints":null}}`, hivev1.CordonedAnnotation)
	testenv.ExpectNoError(t, e.Client.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// kubeconfigOf returns the kubeconfig of a new service account with cluster-wide rights.
func (e *env) kubeconfigOf(t *testing.T, namespace string, rules []rbacv1.PolicyRule) map[string][]byte {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "limited"}}
	e.ExpectCreated(t, account)
	e.GrantRights(t, "system:serviceaccount:"+namespace+":"+account.Name, rules...)
	token := &authenticationv1.TokenRequest{}
	testenv.ExpectNoError(t, e.Client.SubResource("token").Create(t.Context(), account, token))
	return writeKubeconfig(t, e.Config.Host, e.Config.CAData, token.Status.Token)
}

// writeKubeconfig returns the data of a Secret with a kubeconfig for a server and a token.
func writeKubeconfig(t *testing.T, server string, authority []byte, token string) map[string][]byte {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: server, CertificateAuthorityData: authority}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	testenv.ExpectNoError(t, err)
	return map[string][]byte{kubeconfigKey: data}
}

func (e *env) createNode(t *testing.T, name string, edit func(*corev1.Node)) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	edit(node)
	e.ExpectCreated(t, node)
}

// listCordons returns the cause of each node's cordon.
func (e *env) listCordons(t *testing.T) map[string]string {
	t.Helper()
	var nodes corev1.NodeList
	testenv.ExpectNoError(t, e.Client.List(t.Context(), &nodes))
	cordons := map[string]string{}
	for _, n := range nodes.Items {
		_, isMarked := n.Annotations[hivev1.CordonedAnnotation]
		switch {
		case n.Spec.Unschedulable && isMarked:
			cordons[n.Name] = "for the drain"
		case n.Spec.Unschedulable:
			cordons[n.Name] = "by a user"
		case isMarked:
			cordons[n.Name] = "marked, and not cordoned"
		default:
			cordons[n.Name] = "not"
		}
	}
	return cordons
}

// createPod creates a running, ready pod that terminates as soon as it is deleted.
func (s *testCluster) createPod(t *testing.T, name, node, owner string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: name, Labels: map[string]string{"name": name}},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}},
		},
	}
	if owner != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: name, UID: types.UID(name), Controller: new(true)}}
	}
	s.env.ExpectCreated(t, pod)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	testenv.ExpectNoError(t, s.env.Client.Status().Update(t.Context(), pod))
	return pod
}

// forbidEviction creates a PodDisruptionBudget that allows no eviction, with the status that the PodDisruptionBudget
// controller would write.
func (s *testCluster) forbidEviction(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		},
	}
	s.env.ExpectCreated(t, budget)
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	testenv.ExpectNoError(t, s.env.Client.Status().Update(t.Context(), budget))
}

func (s *testCluster) expectGone(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	err := s.env.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{})
	if k8serrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(errors.New("expected it to be gone"), err)
}
