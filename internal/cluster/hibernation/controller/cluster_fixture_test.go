// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	cloudSecret    = "cloud-keys"
	adminSecret    = "admin-kubeconfig"
	requestingUser = "bob"
	wrongKey       = "AKIAWRONG00000000001"
	machines       = 2
)

// clusterSetup contains the parts of a cluster that a test changes before the cluster is created.
type clusterSetup struct {
	cd *hivev1.ClusterDeployment
	// keys and kubeconfig are the data of the two Secrets. A nil value creates no Secret.
	keys, kubeconfig map[string][]byte
	// machines is the number of machines in the cloud. named contains their names instead, without the prefix of the
	// cluster's name.
	machines int
	named    []string
	// cloud contains the machines. It is the environment's cloud, unless a test causes faults for all clusters in it.
	cloud *testenv.CloudServer
	// endpoint is the address at which the manager calls the cloud. If it is empty, the cloud's own address is used.
	endpoint string
	// platform replaces spec.platform with fields that are unknown to Torpor.
	platform map[string]any
}

// testCluster is one ClusterDeployment with a separate namespace and machines.
type testCluster struct {
	env   *env
	cloud *testenv.CloudServer
	// cloudDir is the folder of a cloud that only this cluster uses.
	cloudDir string
	key      client.ObjectKey
	infraID  string
	ids      []string
	// desiredGeneration is the generation of the test's newest change.
	desiredGeneration int64
	history           *statusHistory
}

// newCluster creates a complete cluster that should run, unless edit changes it.
func (e *env) newCluster(t *testing.T, edit func(*clusterSetup)) *testCluster {
	t.Helper()
	namespace := e.CreateNamespace(t)
	s := &testCluster{env: e, key: client.ObjectKey{Namespace: namespace, Name: "sleepy"}, infraID: "infra-" + namespace}
	r := clusterSetup{cd: s.buildClusterDeployment(), keys: e.cloud.CredentialsData(), kubeconfig: e.adminKubeconfig(t), machines: machines, cloud: e.cloud}
	if edit != nil {
		edit(&r)
	}
	s.cloud = r.cloud
	if r.cloud != e.cloud {
		r.keys = r.cloud.CredentialsData()
	}
	if r.endpoint != "" {
		r.keys["endpoint_url"] = []byte(r.endpoint)
	}
	for _, name := range r.named {
		s.ids = append(s.ids, s.cloud.RunInstance(t, s.infraID, s.infraID+"-"+name))
	}
	if r.machines > 0 && len(r.named) == 0 {
		s.ids = s.cloud.RunInstances(t, s.infraID, r.machines)
	}
	s.putSecret(t, cloudSecret, r.keys)
	s.putSecret(t, adminSecret, r.kubeconfig)
	s.history = e.watchHistory(t, s.key)
	if err := e.Client.Create(t.Context(), r.buildObject(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *testCluster) buildClusterDeployment() *hivev1.ClusterDeployment {
	cd := testenv.BuildClusterDeployment(s.key, cloudSecret, adminSecret)
	cd.Spec.ClusterMetadata.InfraID = s.infraID
	return cd
}

func (r clusterSetup) buildObject(t *testing.T) client.Object {
	t.Helper()
	if r.platform == nil {
		return r.cd
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r.cd)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(hivev1.ClusterDeploymentKind())
	if err := unstructured.SetNestedMap(u.Object, r.platform, "spec", "platform"); err != nil {
		t.Fatal(err)
	}
	return u
}

func (e *env) adminKubeconfig(t *testing.T) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(e.KubeconfigPath(t))
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{kubeconfigKey: data}
}

// putSecret creates or replaces a Secret; nil creates none.
func (s *testCluster) putSecret(t *testing.T, name string, data map[string][]byte) {
	t.Helper()
	if data == nil {
		return
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: name}, Data: data}
	err := client.IgnoreNotFound(s.env.Client.Update(t.Context(), secret))
	if err == nil && secret.ResourceVersion == "" {
		err = s.env.Client.Create(t.Context(), secret)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *testCluster) get(t *testing.T) *hivev1.ClusterDeployment {
	t.Helper()
	var cd hivev1.ClusterDeployment
	if err := s.env.Client.Get(t.Context(), s.key, &cd); err != nil {
		t.Fatal(err)
	}
	return &cd
}

// patch applies a JSON merge patch as a user. The field manager is a program.
func (s *testCluster) patch(t *testing.T, who, patch string) {
	t.Helper()
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name}}
	// Some patches are part of a cleanup.
	ctx := context.WithoutCancel(t.Context())
	if err := s.env.clientOf(t, who).Patch(ctx, cd, rawMerge(patch), client.FieldOwner("some-program")); err != nil {
		t.Fatal(err)
	}
	s.desiredGeneration = cd.Generation
}

func rawMerge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

func (s *testCluster) setPowerState(t *testing.T, state hivev1.PowerState) {
	t.Helper()
	s.patch(t, requestingUser, fmt.Sprintf(`{"spec":{"powerState":%q}}`, state))
}

// touchAnnotation changes an unrelated annotation, which triggers one pass.
func (s *testCluster) touchAnnotation(t *testing.T, value int) {
	t.Helper()
	s.patch(t, "alice", fmt.Sprintf(`{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, value))
}

// expectedCondition is the expected status and reason of a condition, and parts of its message.
type expectedCondition struct {
	kind, status, reason string
	says                 []string
}

func (e expectedCondition) check(cd *hivev1.ClusterDeployment) error {
	c := meta.FindStatusCondition(cd.Status.Conditions, e.kind)
	if c == nil {
		return fmt.Errorf("expected the condition %s, found none", e.kind)
	}
	if string(c.Status) != e.status || c.Reason != e.reason {
		return fmt.Errorf("expected %s %s/%s, found %s/%s: %s", e.kind, e.status, e.reason, c.Status, c.Reason, c.Message)
	}
	for _, part := range e.says {
		if !strings.Contains(c.Message, part) {
			return fmt.Errorf("expected the message of %s to contain %q, found %q", e.kind, part, c.Message)
		}
	}
	return nil
}

// hasCondition checks a condition of the newest generation, because an older one may have been equal.
func (s *testCluster) hasCondition(e expectedCondition) error {
	cd := s.history.newest()
	if cd == nil {
		return errors.New("expected a ClusterDeployment, found none yet")
	}
	if err := e.check(cd); err != nil {
		return err
	}
	if seen := cd.Status.Conditions[0].ObservedGeneration; seen < s.desiredGeneration {
		return fmt.Errorf("expected generation %d to be observed, found %d", s.desiredGeneration, seen)
	}
	return nil
}

// awaitCondition waits for a condition.
func (s *testCluster) awaitCondition(t *testing.T, e expectedCondition) {
	t.Helper()
	testenv.Eventually(t, s.infraID+" becomes "+e.reason, func() error { return s.hasCondition(e) })
}

// awaitSettled waits until the cluster and its machines have the power state.
func (s *testCluster) awaitSettled(t *testing.T, state hivev1.PowerState) {
	t.Helper()
	s.awaitCondition(t, settledCondition(state))
	machines := map[hivev1.PowerState]string{hivev1.PowerStateRunning: "running", hivev1.PowerStateHibernating: "stopped"}[state]
	if err := s.cloud.ExpectState(t, s.infraID, machines); err != nil {
		t.Errorf("the cluster is reported as %s: %v", state, err)
	}
}

func settledCondition(state hivev1.PowerState) expectedCondition {
	if state == hivev1.PowerStateHibernating {
		return expectedCondition{kind: hivev1.ClusterHibernatingCondition, status: "True", reason: hivev1.HibernatingHibernationReason}
	}
	return expectedCondition{kind: hivev1.ClusterReadyCondition, status: "True", reason: hivev1.RunningHibernationReason}
}
