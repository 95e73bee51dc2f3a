// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/cluster/syncset"
	"github.com/torpor-dev/torpor/internal/cluster/targetcalls"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const secretValue = "hush-hush-3141592653"

func TestSetReachesItsCluster(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, e.CreateNamespace(t), "cluster", nil)
	e.ExpectCreated(t,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.cd.Namespace, Name: "pull"}, Data: map[string][]byte{"password": []byte(secretValue)}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "theirs"}, Data: map[string]string{"kept": "yes"}},
	)
	set := c.newSyncSet(t, "set", hivev1.SyncSetCommonSpec{
		Resources: []runtime.RawExtension{c.configMap("first", "1"), c.configMap("second", "2")},
		Patches: []hivev1.SyncObjectPatch{
			{APIVersion: "v1", Kind: "ConfigMap", Namespace: c.namespace, Name: "theirs", Patch: "data: {strategic: 'yes'}"},
			{APIVersion: "v1", Kind: "ConfigMap", Namespace: c.namespace, Name: "theirs", Patch: `{"data": {"merge": "yes"}}`, PatchType: "merge"},
			{APIVersion: "v1", Kind: "ConfigMap", Namespace: c.namespace, Name: "theirs", Patch: `[{"op": "add", "path": "/data/json", "value": "yes"}]`, PatchType: "json"},
		},
		Secrets: []hivev1.SecretMapping{{SourceRef: hivev1.SecretReference{Name: "pull"}, TargetRef: hivev1.SecretReference{Namespace: c.namespace, Name: "pulled"}}},
	})
	cs := c.waitForSynced(t, set)
	for name, want := range map[string]map[string]string{
		"first": {"key": "1"}, "second": {"key": "2"}, "theirs": {"kept": "yes", "strategic": "yes", "merge": "yes", "json": "yes"},
	} {
		testenv.ExpectEqual(t, "the ConfigMap "+name, want, c.configMapData(t, name))
	}
	var copied corev1.Secret
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: c.namespace, Name: "pulled"}, &copied))
	testenv.ExpectEqual(t, "the Secret", secretValue, string(copied.Data["password"]))
	status := cs.Status.SyncSets[0]
	if status.Result != hiveinternalv1alpha1.SuccessSyncSetResult || status.FirstSuccessTime == nil || cs.Status.FirstSuccessTime == nil || len(status.ResourcesToDelete) != 0 {
		t.Errorf("expected the success of a set that deletes nothing, found %+v", cs.Status)
	}
	if n := c.proxy.Accepted.Load(); n != 1 {
		t.Errorf("expected one connection, found %d", n)
	}
	e.log.ExpectWithout(t, secretValue)
}

func TestSetReachesTheServerThatOverridesTheKubeconfigs(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, e.CreateNamespace(t), "private", nil)
	e.OverrideServer(t, c.cd, c.proxy)
	set := c.newSyncSet(t, "set", hivev1.SyncSetCommonSpec{Resources: []runtime.RawExtension{c.configMap("first", "1")}})
	c.waitForSynced(t, set)
	testenv.ExpectEqual(t, "the ConfigMap", map[string]string{"key": "1"}, c.configMapData(t, "first"))
}

func TestUpsertKeepsRemovedResourcesAndSyncDeletesThem(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, e.CreateNamespace(t), "cluster", nil)
	both := func(prefix string) []runtime.RawExtension {
		return []runtime.RawExtension{c.configMap(prefix+"-stays", "1"), c.configMap(prefix+"-leaves", "1")}
	}
	upsert := c.newSyncSet(t, "upsert", hivev1.SyncSetCommonSpec{Resources: both("upsert"), ResourceApplyMode: hivev1.UpsertResourceApplyMode})
	deletes := c.newSyncSet(t, "sync", hivev1.SyncSetCommonSpec{Resources: both("sync"), ResourceApplyMode: hivev1.SyncResourceApplyMode})
	cs := c.waitForSynced(t, upsert, deletes)
	if len(cs.Status.SyncSets) != 2 || len(cs.Status.SyncSets[0].ResourcesToDelete) != 2 || len(cs.Status.SyncSets[1].ResourcesToDelete) != 0 {
		t.Errorf("expected two objects that the set of the mode Sync may delete, found %+v", cs.Status.SyncSets)
	}
	for _, set := range []*hivev1.SyncSet{upsert, deletes} {
		testenv.ExpectPatched(t, e.Environment, set, func(s *hivev1.SyncSet) { s.Spec.Resources = s.Spec.Resources[:1] })
	}
	c.waitForSynced(t, upsert, deletes)
	for name, want := range map[string]bool{"upsert-stays": true, "upsert-leaves": true, "sync-stays": true, "sync-leaves": false} {
		if found := c.configMapData(t, name) != nil; found != want {
			t.Errorf("%s: expected it to be there %t, found %t", name, want, found)
		}
	}
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), upsert))
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), deletes))
	e.WaitFor(t, "both sets are removed from the status", cs, func() error {
		return testenv.ErrorIf(len(cs.Status.SyncSets) > 0, "found %+v", cs.Status.SyncSets)
	})
	if c.configMapData(t, "upsert-stays") == nil || c.configMapData(t, "sync-stays") != nil {
		t.Error("expected only the objects of the mode Upsert to remain")
	}
}

func TestRefusedObjectIsNamedAndOtherSetsAreApplied(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, e.CreateNamespace(t), "cluster", nil)
	nowhere := encode(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "nowhere-" + c.namespace, Name: "lost"}})
	bad := c.newSyncSet(t, "bad", hivev1.SyncSetCommonSpec{Resources: []runtime.RawExtension{c.configMap("before", "1"), nowhere, c.configMap("after", "1")}})
	unknown := c.newSyncSet(t, "unknown", hivev1.SyncSetCommonSpec{Resources: []runtime.RawExtension{{Raw: []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)}}})
	foreign := c.newSyncSet(t, "foreign", hivev1.SyncSetCommonSpec{Secrets: []hivev1.SecretMapping{{
		SourceRef: hivev1.SecretReference{Namespace: "kube-system", Name: "any"}, TargetRef: hivev1.SecretReference{Namespace: c.namespace, Name: "stolen"},
	}}})
	// The API server quotes rejected values.
	quoted := c.newSyncSet(t, "quoted", hivev1.SyncSetCommonSpec{Resources: []runtime.RawExtension{
		{Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"quoted","namespace":%q},"data":{"password":%q}}`, c.namespace, secretValue)},
	}})
	good := c.newSyncSet(t, "good", hivev1.SyncSetCommonSpec{Resources: []runtime.RawExtension{c.configMap("good", "1")}})
	cs := c.sync()
	want := map[string]string{"bad": "ConfigMap nowhere-" + c.namespace + "/lost: the server responds with 404 NotFound: namespaces", "unknown": "Widget w: the cluster does not serve this kind", "foreign": "expected sourceRef.namespace of a SyncSet to be empty", "quoted": "Secret " + c.namespace + "/quoted: the server responds with ", "good": ""}
	e.WaitFor(t, "each set has its result", cs, func() error {
		if len(cs.Status.SyncSets) != len(want) {
			return fmt.Errorf("found %+v", cs.Status.SyncSets)
		}
		for _, status := range cs.Status.SyncSets {
			words := want[status.Name]
			if status.ObservedGeneration == 0 || (status.Result == hiveinternalv1alpha1.SuccessSyncSetResult) != (words == "") || !strings.Contains(status.FailureMessage, words) || strings.Contains(status.FailureMessage, secretValue) {
				return fmt.Errorf("%s: expected %q, found %+v", status.Name, words, status)
			}
		}
		return nil
	})
	e.WaitForCondition(t, cs, hiveinternalv1alpha1.ClusterSyncFailedCondition, metav1.ConditionTrue, hiveinternalv1alpha1.SyncFailureReason)
	if c.configMapData(t, "before") == nil || c.configMapData(t, "after") != nil || c.configMapData(t, "good") == nil {
		t.Error("expected a set to end at its first refused object, and other sets to go on")
	}
	e.log.ExpectWithout(t, secretValue)
	testenv.ExpectPatched(t, e.Environment, bad, func(s *hivev1.SyncSet) { s.Spec.Resources = append(s.Spec.Resources[:1], s.Spec.Resources[2]) })
	for _, set := range []*hivev1.SyncSet{unknown, foreign, quoted} {
		testenv.ExpectNoError(t, e.Client.Delete(t.Context(), set))
	}
	c.waitForSynced(t, bad, good)
	e.WaitForCondition(t, cs, hiveinternalv1alpha1.ClusterSyncFailedCondition, metav1.ConditionFalse, hiveinternalv1alpha1.SyncSuccessReason)
}

func TestHibernatingClusterIsUpdatedOnceAfterTheResume(t *testing.T) {
	t.Parallel()
	e := &env{Environment: testenv.Start(t), metrics: NewMetrics()}
	stop := e.startManager(t)
	c := e.newCluster(t, e.CreateNamespace(t), "cluster", nil)
	witness := e.newCluster(t, c.cd.Namespace, "witness", nil)
	set := c.newSyncSet(t, "set", hivev1.SyncSetCommonSpec{Resources: []runtime.RawExtension{c.configMap("one", "1")}, ResourceApplyMode: hivev1.SyncResourceApplyMode})
	other := c.newSyncSet(t, "unchanged", hivev1.SyncSetCommonSpec{Resources: []runtime.RawExtension{c.configMap("two", "1")}})
	c.waitForSynced(t, set, other)
	// restart restarts the manager and applies a set to another cluster. Once it is applied, the manager has evaluated
	// all clusters.
	restart := func(name string) {
		t.Helper()
		stop()
		stop = e.startManager(t)
		witness.waitForSynced(t, witness.newSyncSet(t, name, hivev1.SyncSetCommonSpec{Resources: []runtime.RawExtension{witness.configMap(name, "1")}}))
	}
	c.sleep(t)
	c.proxy.Accepted.Store(0)
	testenv.ExpectPatched(t, e.Environment, set, func(s *hivev1.SyncSet) { s.Spec.Resources = []runtime.RawExtension{c.configMap("three", "3")} })
	cs := c.sync()
	e.WaitForCondition(t, cs, hiveinternalv1alpha1.ClusterSyncedCondition, metav1.ConditionFalse, hiveinternalv1alpha1.WaitingForClusterReason)
	restart("while-it-sleeps")
	e.WaitForCondition(t, cs, hiveinternalv1alpha1.ClusterSyncedCondition, metav1.ConditionFalse, hiveinternalv1alpha1.WaitingForClusterReason)
	if n := c.proxy.Accepted.Load(); n != 0 {
		t.Fatalf("expected no connection to a hibernating cluster, found %d", n)
	}
	resume := new(metav1.NewTime(clock.RealClock{}.Now()).Rfc3339Copy())
	c.wake(t, resume)
	c.waitForSynced(t, set, other)
	if c.configMapData(t, "one") != nil || c.configMapData(t, "two") == nil || c.configMapData(t, "three") == nil {
		t.Error("expected the changes made during the hibernation to be in the cluster")
	}
	restart("after-the-resume")
	e.WaitFor(t, "the resume is recorded", cs, func() error {
		return testenv.ErrorIf(!cs.Status.SyncedResume.Equal(resume), "found %+v", cs.Status)
	})
	if n := c.proxy.Accepted.Load(); n != 1 {
		t.Errorf("expected one connection after the resume, found %d", n)
	}
}

func TestHungClustersDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	hung := testenv.StartTargetProxy(t, e.Environment)
	hung.IsHung.Store(true)
	const count = 15
	set := &hivev1.SyncSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hung"}}
	var clusters []*testCluster
	for i := range count {
		c := e.newClusterBehind(t, hung, namespace, fmt.Sprintf("hung-%d", i), nil)
		clusters = append(clusters, c)
		set.Spec.ClusterDeploymentRefs = append(set.Spec.ClusterDeploymentRefs, hivev1.LocalObjectReference{Name: c.cd.Name})
	}
	set.Spec.Resources = []runtime.RawExtension{clusters[0].configMap("never", "1")}
	e.ExpectCreated(t, set)
	for _, c := range clusters {
		condition := e.WaitForCondition(t, c.sync(), hiveinternalv1alpha1.ClusterSyncedCondition, metav1.ConditionFalse, hiveinternalv1alpha1.NoAnswerReason)
		if !strings.Contains(condition.Message, "no answer in time") {
			t.Errorf("expected a message about an answer that is late, found %q", condition.Message)
		}
	}
	healthy := e.newCluster(t, namespace, "healthy", nil)
	healthy.waitForSynced(t, healthy.newSyncSet(t, "healthy", hivev1.SyncSetCommonSpec{Resources: []runtime.RawExtension{healthy.configMap("there", "1")}}))
	if meta.IsStatusConditionTrue(clusters[0].sync().Status.Conditions, hiveinternalv1alpha1.ClusterSyncedCondition) || hung.Accepted.Load() < count {
		t.Errorf("expected each hung cluster to be tried, found %d connections", hung.Accepted.Load())
	}
}

func TestSelectorSyncSetReachesOnlyClustersThatItSelects(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	namespace, vault := e.CreateNamespace(t), e.CreateNamespace(t)
	e.ExpectCreated(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: vault, Name: "shared"}, Data: map[string][]byte{"password": []byte(secretValue)}})
	label := "tier-" + namespace
	selected, other := e.newCluster(t, namespace, "selected", map[string]string{label: "gold"}), e.newCluster(t, namespace, "other", nil)
	set := &hivev1.SelectorSyncSet{ObjectMeta: metav1.ObjectMeta{Name: "set-" + namespace}}
	set.Spec.ClusterDeploymentSelector.MatchLabels = map[string]string{label: "gold"}
	set.Spec.ResourceApplyMode = hivev1.SyncResourceApplyMode
	set.Spec.Resources = []runtime.RawExtension{selected.configMap("one", "1")}
	set.Spec.Secrets = []hivev1.SecretMapping{{SourceRef: hivev1.SecretReference{Namespace: vault, Name: "shared"}, TargetRef: hivev1.SecretReference{Namespace: selected.namespace, Name: "shared"}}}
	e.ExpectCreated(t, set)
	e.DeleteAfterTest(t, set)
	cs := selected.waitForSynced(t, set)
	if n := len(cs.Status.SelectorSyncSets[0].ResourcesToDelete); n != 2 {
		t.Errorf("expected the ConfigMap and the Secret to be recorded, found %d objects", n)
	}
	if n := other.proxy.Accepted.Load(); n != 0 || !strings.Contains(fmt.Sprint(e.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "other"}, other.sync())), "not found") {
		t.Errorf("expected the other cluster to have no ClusterSync and no connection, found %d connections", n)
	}
	testenv.ExpectPatched(t, e.Environment, selected.cd, func(cd *hivev1.ClusterDeployment) { delete(cd.Labels, label) })
	e.WaitFor(t, "the set is forgotten", cs, func() error {
		return testenv.ErrorIf(len(cs.Status.SelectorSyncSets) > 0, "found %+v", cs.Status)
	})
	if selected.configMapData(t, "one") != nil {
		t.Error("expected the object to be gone from a cluster that is not selected any more")
	}
}

func TestInvalidSelectorDeletesNoObjects(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	label := "tier-" + namespace
	c := e.newCluster(t, namespace, "selected", map[string]string{label: "gold"})
	set := &hivev1.SelectorSyncSet{ObjectMeta: metav1.ObjectMeta{Name: "set-" + namespace}}
	set.Spec.ClusterDeploymentSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpIn, Values: []string{"gold"}}}
	set.Spec.ResourceApplyMode = hivev1.SyncResourceApplyMode
	set.Spec.Resources = []runtime.RawExtension{c.configMap("one", "1")}
	e.ExpectCreated(t, set)
	e.DeleteAfterTest(t, set)
	cs := c.waitForSynced(t, set)
	testenv.ExpectPatched(t, e.Environment, set, func(s *hivev1.SelectorSyncSet) { s.Spec.ClusterDeploymentSelector.MatchExpressions[0].Operator = "in" })
	condition := e.WaitForCondition(t, cs, hiveinternalv1alpha1.ClusterSyncFailedCondition, metav1.ConditionTrue, hiveinternalv1alpha1.SyncFailureReason)
	if !strings.Contains(condition.Message, "SelectorSyncSet "+set.Name+": spec.clusterDeploymentSelector: ") || c.configMapData(t, "one") == nil {
		t.Errorf("expected the ConfigMap to stay and the condition to name the selector, found %q", condition.Message)
	}
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), set))
	e.WaitFor(t, "the deleted set is forgotten", cs, func() error {
		return testenv.ErrorIf(len(cs.Status.SelectorSyncSets) > 0, "found %+v", cs.Status)
	})
	if c.configMapData(t, "one") != nil {
		t.Error("expected the object of a deleted set to be gone")
	}
}

// TestResumeAfterAnExpiredStopIsDetected uses a cluster with an expired stop in its status.
func TestResumeAfterAnExpiredStopIsDetected(t *testing.T) {
	testenv.ExpectWakeAfterExpiredStop(t, func(cd *hivev1.ClusterDeployment, now time.Time) bool { return readGate(cd, now).MayDial }, gateOrLabelsChanged())
}

func TestJobEndsWhenItsClusterHibernates(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, e.CreateNamespace(t), "cluster", nil)
	var asked atomic.Int64
	const allowed = 2
	a := NewApplier(Controller{}.Dialer, clock.RealClock{})
	a.ReadSecret = targetcalls.ReadSecretWith(e.Client)
	a.MayDial = func(context.Context, types.NamespacedName) bool { return asked.Add(1) <= allowed }
	spec := &hivev1.SyncSetCommonSpec{}
	for i := range 5 {
		spec.Resources = append(spec.Resources, c.configMap(fmt.Sprintf("object-%d", i), "1"))
	}
	key := syncset.SetKey{Name: "set"}
	answer := a.run(t.Context(), &clusterJob{
		Job: syncset.Job{Sets: []syncset.SetKey{key}}, Cluster: types.NamespacedName{Namespace: c.cd.Namespace, Name: c.cd.Name},
		Server: targetcalls.Server{KubeconfigSecret: c.cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name}, Sets: []setToApply{{SetKey: key, Spec: spec}},
	})
	var there []bool
	for i := range 5 {
		there = append(there, c.configMapData(t, fmt.Sprintf("object-%d", i)) != nil)
	}
	if diff := cmp.Diff([]bool{true, true, false, false, false}, there); diff != "" || len(answer.Results) != 0 || answer.NoAnswer != "" {
		t.Errorf("expected the job to end without a result after %d requests, found %+v (-want +got):\n%s", allowed, answer, diff)
	}
	if answer.At.Add(time.Hour).Before(clock.RealClock{}.Now()) {
		t.Errorf("expected the time of the end, found %s", answer.At)
	}
}

// hastyClock advances by just over half the job time at each reading.
type hastyClock struct {
	clock.PassiveClock
	looks atomic.Int64
}

func (c *hastyClock) Since(time.Time) time.Duration {
	return time.Duration(c.looks.Add(1)-1) * (jobTime/2 + 1)
}

// stridingClock advances by a fixed amount at each reading.
type stridingClock struct {
	clock.PassiveClock
	stride time.Duration
	asked  int
}

func (c *stridingClock) Now() time.Time {
	c.asked++
	return time.Unix(0, 0).Add(time.Duration(c.asked) * c.stride)
}

// TestSlowClusterDoesNotDelayOthers runs a job that takes exactly the job time, and a job that takes a second more.
func TestSlowClusterDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://127.0.0.1:1"}}, Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "c"}}, CurrentContext: "c",
	})
	testenv.ExpectNoError(t, err)
	for took, wantSlow := range map[time.Duration]bool{jobTime: false, jobTime + time.Second: true} {
		applier := NewApplier(targetcluster.Dialer{}, &stridingClock{PassiveClock: clock.RealClock{}, stride: took / 2})
		applier.ReadSecret = func(context.Context, types.NamespacedName) (*corev1.Secret, error) {
			return &corev1.Secret{Data: map[string][]byte{"kubeconfig": kubeconfig}}, nil
		}
		answer, outcome := applier.do(t.Context(), &clusterJob{})
		if outcome.IsSilent != wantSlow || outcome.HasFailed || answer.NoAnswer != "" {
			t.Errorf("a job of %s: expected a success, and slow %t, found %+v and %+v", took, wantSlow, answer, outcome)
		}
	}
}

// TestJobOfASlowClusterEndsBetweenSets uses a job of three sets at a slow cluster. The time suffices for two of them.
func TestJobOfASlowClusterEndsBetweenSets(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, e.CreateNamespace(t), "slow", nil)
	var job clusterJob
	job.Cluster, job.Server.KubeconfigSecret = client.ObjectKeyFromObject(c.cd), kubeconfigSecret+"-slow"
	for _, name := range []string{"a", "b", "c"} {
		job.Job.Sets = append(job.Job.Sets, syncset.SetKey{Name: name})
		job.Sets = append(job.Sets, setToApply{SetKey: syncset.SetKey{Name: name}, Spec: &hivev1.SyncSetCommonSpec{}})
	}
	applier := NewApplier(targetcluster.Dialer{}, &hastyClock{PassiveClock: clock.RealClock{}})
	applier.MayDial = func(context.Context, types.NamespacedName) bool { return true }
	applier.ReadSecret = func(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
		secret := &corev1.Secret{}
		return secret, e.Client.Get(ctx, name, secret)
	}
	answer := applier.run(t.Context(), &job)
	if len(answer.Results) != 2 || answer.NoAnswer != "" {
		t.Errorf("expected two sets and no error of the cluster, found %+v", answer)
	}
}
