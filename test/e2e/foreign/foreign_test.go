// SPDX-License-Identifier: Apache-2.0

// Package foreign runs Torpor on a hub whose CustomResourceDefinitions are those of Hive, MOCO and Korifi: every
// workflow succeeds or ends with a condition that has the reason, and no request or write is repeated endlessly.
package foreign

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	appcontroller "github.com/torpor-dev/torpor/internal/cf/app/controller"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/cloud/aws"
	hibernationcontroller "github.com/torpor-dev/torpor/internal/cluster/hibernation/controller"
	"github.com/torpor-dev/torpor/internal/manager"
	clusteringcontroller "github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

const (
	maxCloudCalls   = 12
	maxStatusWrites = 6
	// observedFor is the time for which calls and writes are counted.
	observedFor = 20 * time.Second
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// statusWrites counts writes of a status, by kind.
type statusWrites struct {
	mu    sync.Mutex
	count map[string]int
}

type countingTransport struct {
	http.RoundTripper
	writes *statusWrites
}

// RoundTrip implements http.RoundTripper.
func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if path, isStatus := strings.CutSuffix(r.URL.Path, "/status"); isStatus && r.Method != http.MethodGet {
		parts := strings.Split(path, "/")
		c.writes.mu.Lock()
		c.writes.count[parts[len(parts)-2]]++
		c.writes.mu.Unlock()
	}
	return c.RoundTripper.RoundTrip(r)
}

// take returns the number of writes of a kind, and resets it.
func (w *statusWrites) take(resource string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.count[resource]
	w.count[resource] = 0
	return n
}

// asManager returns the environment with only the permissions in config/rbac, and a counter of its status writes.
func asManager(t *testing.T, env *testenv.Environment) (*testenv.Environment, *statusWrites) {
	t.Helper()
	user := env.ApplyManagerRoles(t, "default")
	writes := &statusWrites{count: map[string]int{}}
	limited := env.WithTransport(func(next http.RoundTripper) http.RoundTripper { return countingTransport{next, writes} })
	limited.Config = limited.ImpersonateUser(user)
	return limited, writes
}

// crdFile returns the path of the file with another project's CRD.
func crdFile(name string) string { return filepath.Join("testdata", "crds", name+".yaml") }

// sleepyCluster is a cluster with a ClusterDeployment on a hub with Hive's schema.
type sleepyCluster struct {
	*testenv.TargetCluster
	hub    *testenv.Environment
	cloud  *testenv.CloudServer
	writes *statusWrites
}

func (s *sleepyCluster) get(t *testing.T) *hivev1.ClusterDeployment {
	t.Helper()
	cd := &hivev1.ClusterDeployment{}
	if err := s.hub.Client.Get(t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, cd); err != nil {
		t.Fatal(err)
	}
	return cd
}

// reach requests a power state and returns when it is reached. It fails the test if the transition takes more calls or
// writes than allowed.
func (s *sleepyCluster) reach(t *testing.T, state hivev1.PowerState) {
	t.Helper()
	kind, reason, machines := hivev1.ClusterReadyCondition, hivev1.RunningHibernationReason, "running"
	if state == hivev1.PowerStateHibernating {
		kind, reason, machines = hivev1.ClusterHibernatingCondition, hivev1.HibernatingHibernationReason, "stopped"
	}
	s.cloud.ResetCalls(t)
	s.writes.take("clusterdeployments")
	began := time.Now()
	testenv.ExpectPatched(t, s.hub, s.get(t), func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = state })
	s.hub.WaitForCondition(t, s.get(t), kind, metav1.ConditionTrue, reason)
	if err := s.cloud.ExpectState(t, s.InfraID, machines); err != nil {
		t.Error(err)
	}
	calls := 0
	for action, n := range s.cloud.CountCalls(t) {
		if !strings.HasSuffix(action, ".errors") {
			calls += n
		}
	}
	// On a slow machine the transition takes longer than the 20 s for which the limit is defined.
	times := 1 + int(time.Since(began)/observedFor)
	if writes := s.writes.take("clusterdeployments"); calls > maxCloudCalls*times || writes > maxStatusWrites*times {
		t.Errorf("expected at most %d calls and %d writes of the status in each %s, found %d and %d in %s",
			maxCloudCalls, maxStatusWrites, observedFor, calls, writes, time.Since(began))
	} else {
		t.Logf("%s: %d cloud calls and %d writes of the status in %s", state, calls, writes, time.Since(began).Round(time.Millisecond))
	}
}

// TestClusterHibernatesWithHivesSchema also replaces the schema while a cluster hibernates.
func TestClusterHibernatesWithHivesSchema(t *testing.T) {
	t.Parallel()
	env := testenv.StartAPIServer(t)
	limited, writes := asManager(t, env)
	env.InstallCRDs(t, crdFile("clusterdeployments"))
	cloud := testenv.StartCloud(t, "--allow-commands")
	s := &sleepyCluster{hub: env, cloud: cloud, writes: writes, TargetCluster: testenv.CreateTargetCluster(t, env, cloud, testenv.ClusterOptions{
		Name: "sleepy", Nodes: 2, Certificates: time.Hour, Flags: []string{"--heartbeat", "1s"},
	})}
	theirs := s.writeTheirConditions(t)
	startManager := func() (stop func()) {
		return testenv.StartManager(t, limited, hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"aws": aws.New(aws.Options{})}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager)
	}
	stop := startManager()
	s.reach(t, hivev1.PowerStateHibernating)
	lost := s.hub.WaitForCondition(t, s.get(t), torporv1alpha1.StatusFullyStoredCondition, metav1.ConditionFalse, torporv1alpha1.SchemaLacksFieldReason)
	if !strings.Contains(lost.Message, "status.hibernation") {
		t.Errorf("expected the condition to name status.hibernation, found %q", lost.Message)
	}
	s.reach(t, hivev1.PowerStateRunning)
	s.reach(t, hivev1.PowerStateHibernating)
	s.expectTheirConditions(t, theirs)

	// Torpor's own schema, then Hive's again, while the cluster hibernates and the manager is restarted.
	env.InstallCRDs(t)
	stop()
	stop = startManager()
	s.reach(t, hivev1.PowerStateRunning)
	s.expectNodesRemembered(t)
	s.reach(t, hivev1.PowerStateHibernating)
	env.InstallCRDs(t, crdFile("clusterdeployments"))
	stop()
	stop = startManager()
	s.reach(t, hivev1.PowerStateRunning)
	s.expectNodesRemembered(t)

	endedStop{
		env: env, obj: s.get(t), controller: hibernationcontroller.Name, field: "stops", spec: map[string]any{"powerState": hivev1.PowerStateHibernating},
		annotations: map[string]any{}, policy: "record/hibernation.yaml", noted: torporv1alpha1.RequestedByAnnotation, keepsSwitch: true,
		whileStopped: func() {
			env.WaitForCondition(t, s.get(t), hivev1.ClusterHibernatingCondition, metav1.ConditionTrue, hivev1.HibernatingHibernationReason)
			stop()
			startManager() // The new manager finds the stop only in the annotation.
		},
	}.expectEnds(t)
	env.WaitForCondition(t, s.get(t), hivev1.ClusterReadyCondition, metav1.ConditionTrue, hivev1.RunningHibernationReason)
	testenv.ExpectNoError(t, cloud.ExpectState(t, s.InfraID, "running"))
}

// writeTheirConditions writes conditions without a reason, a time, or both, as Hive's schema allows.
func (s *sleepyCluster) writeTheirConditions(t *testing.T) []any {
	t.Helper()
	theirs := []any{
		map[string]any{"type": "Provisioned", "status": "True"},
		map[string]any{"type": "DNSNotReady", "status": "False", "reason": "", "lastProbeTime": "2026-01-01T00:00:00Z"},
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(hivev1.ClusterDeploymentKind())
	if err := s.hub.Client.Get(t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, u); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedSlice(u.Object, theirs, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if err := s.hub.Client.Status().Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	return theirs
}

func (s *sleepyCluster) expectTheirConditions(t *testing.T, theirs []any) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(hivev1.ClusterDeploymentKind())
	if err := s.hub.Client.Get(t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, u); err != nil {
		t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	if len(conditions) < len(theirs) {
		t.Fatalf("expected %v, found %v", theirs, conditions)
	}
	for i := range theirs {
		if fmt.Sprint(conditions[i]) != fmt.Sprint(theirs[i]) {
			t.Errorf("expected the condition of another controller as it was, %v, found %v", theirs[i], conditions[i])
		}
	}
}

// expectNodesRemembered expects the nodes in the annotation that does not depend on the schema.
func (s *sleepyCluster) expectNodesRemembered(t *testing.T) {
	t.Helper()
	cd := s.get(t)
	waitForRemembered(t, s.hub, cd, hibernationcontroller.Name, 2, `"uid"`)
	waitForRemembered(t, s.hub, cd, hibernationcontroller.Name, 1, `"resumedAt"`)
}

// TestAppRestartsWithKorifisSchema restarts an app as `cf restart` does, after a Slumber has stopped and started it.
func TestAppRestartsWithKorifisSchema(t *testing.T) {
	t.Parallel()
	env := testenv.StartControlPlane(t, 1)
	limited, writes := asManager(t, env)
	env.InstallCRDs(t)
	env.InstallCRDs(t, crdFile("cfapps"))
	app := startApp(t, env, limited)
	expectAppSleeps(t, env, app)
	writes.take("cfapps")
	for range 2 {
		for _, state := range []korifiv1alpha1.AppState{korifiv1alpha1.StoppedState, korifiv1alpha1.StartedState} {
			testenv.ExpectPatched(t, env, app, func(app *korifiv1alpha1.CFApp) { app.Spec.DesiredState = state })
			reason := map[korifiv1alpha1.AppState]string{korifiv1alpha1.StoppedState: korifiv1alpha1.StoppedReason, korifiv1alpha1.StartedState: korifiv1alpha1.RunningReason}[state]
			env.WaitFor(t, "the app is "+reason, app, func() error { return checkObserved(app, app.Status.Conditions, korifiv1alpha1.ReadyCondition, reason) })
		}
	}
	if n := writes.take("cfapps"); n > 4*maxStatusWrites {
		t.Errorf("expected at most %d writes of the status in two restarts, found %d", 4*maxStatusWrites, n)
	}
	lost := env.WaitForCondition(t, app, torporv1alpha1.StatusFullyStoredCondition, metav1.ConditionFalse, torporv1alpha1.SchemaLacksFieldReason)
	for _, field := range []string{"status.observedRevision", "status.restarts"} {
		if !strings.Contains(lost.Message, field) {
			t.Errorf("expected the condition to name %s, found %q", field, lost.Message)
		}
	}
	waitForRemembered(t, env, app, "torpor-restart", 2, `"cause":"Stop"`)
	if n := countRestarts(t, string(korifiv1alpha1.CausedByStop)); n != 2 {
		t.Errorf("expected the metric to count each restart once, found %v of 2", n)
	}
	endedStop{
		env: env, obj: app, controller: appcontroller.Name, field: "stops",
		spec: map[string]any{"desiredState": korifiv1alpha1.StoppedState}, annotations: map[string]any{},
		whileStopped: func() {
			env.WaitForCondition(t, app, korifiv1alpha1.ReadyCondition, metav1.ConditionTrue, korifiv1alpha1.StoppedReason)
		},
	}.expectEnds(t)
	env.WaitForCondition(t, app, korifiv1alpha1.ReadyCondition, metav1.ConditionTrue, korifiv1alpha1.RunningReason)
	testenv.ExpectEqual(t, "the desired state", korifiv1alpha1.StartedState, app.Spec.DesiredState)
}

// startApp starts the whole manager and an app of two instances, and waits until the app runs.
func startApp(t *testing.T, env, limited *testenv.Environment) *korifiv1alpha1.CFApp {
	t.Helper()
	namespace, address := env.CreateNamespace(t), testenv.FreeAddress(t)
	env.InstallWebhooks(t, "https://"+address, nil)
	logs := &testenv.LogBuffer{}
	logs.ShowOnFailure(t, "the manager")
	options := manager.Options{MetricsAddress: "0", ProbeAddress: "0", Webhook: manager.WebhookOptions{Address: address}, Namespace: namespace, Log: logs.StructuredLogger()}
	testenv.RunInBackground(t, "the manager", func(ctx context.Context) error { return manager.Run(ctx, limited.Config, options) })
	env.WaitForAppAdmission(t, namespace, korifiv1alpha1.FirstRevision)

	key := types.NamespacedName{Namespace: namespace, Name: "shop"}
	app := testenv.BuildCFApp(key)
	app.Spec.DesiredState, app.Spec.CurrentDropletRef = korifiv1alpha1.StartedState, &korifiv1alpha1.Reference{Name: key.Name}
	build := &korifiv1alpha1.CFBuild{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.Name}}
	build.Spec.PackageRef.Name, build.Spec.AppRef.Name, build.Spec.Lifecycle.Type = key.Name, key.Name, korifiv1alpha1.DockerLifecycle
	source := &korifiv1alpha1.CFPackage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.Name}, Spec: korifiv1alpha1.CFPackageSpec{
		Type: korifiv1alpha1.DockerPackage, AppRef: korifiv1alpha1.Reference{Name: key.Name},
		Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: "registry.example/app:1"}},
	}}
	process := &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: revision.ProcessName(key.Name, korifiv1alpha1.WebProcess)}}
	process.Spec = korifiv1alpha1.CFProcessSpec{
		AppRef: korifiv1alpha1.Reference{Name: key.Name}, ProcessType: korifiv1alpha1.WebProcess, DesiredInstances: new(int32(2)), MemoryMB: 16, DiskQuotaMB: 16,
	}
	env.ExpectCreated(t, source, build, process, app)
	env.WaitForCondition(t, app, korifiv1alpha1.ReadyCondition, metav1.ConditionTrue, korifiv1alpha1.RunningReason)
	return app
}

// waitForRemembered waits until a controller's annotation contains each word the given number of times. The
// annotation is written after the status.
func waitForRemembered(t *testing.T, env *testenv.Environment, obj client.Object, controller string, times int, words ...string) {
	t.Helper()
	env.WaitFor(t, controller+" remembers", obj, func() error {
		text := obj.GetAnnotations()[torporv1alpha1.StatusAnnotationPrefix+controller]
		for _, word := range words {
			if strings.Count(text, word) != times {
				return fmt.Errorf("expected %d of %s, found %q", times, word, text)
			}
		}
		return nil
	})
}

// checkObserved returns an error until a condition is True for this reason and this generation.
func checkObserved(obj client.Object, conditions []metav1.Condition, kind, reason string) error {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason || c.ObservedGeneration != obj.GetGeneration() {
		return fmt.Errorf("expected %s for %s, found %v", kind, reason, c)
	}
	return nil
}

// countRestarts returns the value of torpor_app_restarts_total for a cause.
func countRestarts(t *testing.T, cause string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "torpor_app_restarts_total" && m.GetLabel()[0].GetValue() == cause {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestClusteringStopsAndStartsWithMOCOsSchema stops and starts clustering of real MySQL servers.
func TestClusteringStopsAndStartsWithMOCOsSchema(t *testing.T) {
	t.Parallel()
	env := testenv.StartAPIServer(t)
	limited, writes := asManager(t, env)
	env.InstallCRDs(t, crdFile("mysqlclusters"))
	pods := mysqlpods.StartCluster(t, env, 3, mysqlpods.ClusterOptions{})
	createClusterWithRestore(t, env)
	testenv.StartManager(t, limited, func(mgr ctrl.Manager) error {
		return clusteringcontroller.Controller{
			HostOf: func(_ *mocov1beta2.MySQLCluster, i int, _ *corev1.Pod) string { return pods.PodAddresses()[i] }, Clock: clock.RealClock{}, Metrics: clusteringcontroller.NewMetrics(),
		}.SetupWithManager(mgr)
	})
	pods.CreateMySQLCluster(t)
	cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: pods.Name.Namespace, Name: pods.Name.Name}}
	env.WaitForCondition(t, cluster, mocov1beta2.HealthyCondition, metav1.ConditionTrue, mocov1beta2.HealthyReason)
	for range 2 {
		writes.take("mysqlclusters")
		env.ExpectAnnotated(t, cluster, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"})
		env.WaitForCondition(t, cluster, mocov1beta2.ClusteringActiveCondition, metav1.ConditionFalse, mocov1beta2.ClusteringInactiveReason)
		waitForRemembered(t, env, cluster, clusteringcontroller.Name, 1, `"pause":{"clustering":{"since"`, `"clusteringStops":[{"since"`, `"role":"primary"`)
		env.ExpectAnnotated(t, cluster, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: ""})
		env.WaitForCondition(t, cluster, mocov1beta2.ClusteringActiveCondition, metav1.ConditionTrue, mocov1beta2.ClusteringActiveReason)
		env.WaitForCondition(t, cluster, mocov1beta2.HealthyCondition, metav1.ConditionTrue, mocov1beta2.HealthyReason)
		if n := writes.take("mysqlclusters"); n > 2*maxStatusWrites {
			t.Errorf("expected at most %d writes of the status for a stop and a start, found %d", 2*maxStatusWrites, n)
		}
	}
	lost := env.WaitForCondition(t, cluster, torporv1alpha1.StatusFullyStoredCondition, metav1.ConditionFalse, torporv1alpha1.SchemaLacksFieldReason)
	if !strings.Contains(lost.Message, "status.instances") || !strings.Contains(lost.Message, "status.pause") {
		t.Errorf("expected the condition to name status.instances and status.pause, found %q", lost.Message)
	}
	testenv.Consistently(t, 5*time.Second, "no status is written while nothing changes", func() error {
		if n := writes.take("mysqlclusters"); n > maxStatusWrites {
			return errors.New("found a write in each pass")
		}
		return nil
	})
	endedStop{
		env: env, obj: cluster, controller: clusteringcontroller.Name, field: "clusteringStops", annotations: map[string]any{mocov1beta2.ClusteringStoppedAnnotation: "true"},
		policy: "record/mysql.yaml", noted: mocov1beta2.ClusteringRequestedByAnnotation,
		whileStopped: func() {
			env.WaitForCondition(t, cluster, mocov1beta2.ClusteringActiveCondition, metav1.ConditionFalse, mocov1beta2.ClusteringInactiveReason)
		},
	}.expectEnds(t)
	env.WaitForCondition(t, cluster, mocov1beta2.ClusteringActiveCondition, metav1.ConditionTrue, mocov1beta2.ClusteringActiveReason)
	testenv.ExpectEqual(t, "the switch", "", cluster.Annotations[mocov1beta2.ClusteringStoppedAnnotation])
}

// createClusterWithRestore creates a MySQLCluster whose spec.restore.users is a string, as in MOCO's schema. If this
// object could not be decoded, no MySQLCluster could be read.
func createClusterWithRestore(t *testing.T, env *testenv.Environment) {
	t.Helper()
	cluster := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: env.CreateNamespace(t), Name: "restored"}, 1)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cluster)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(mocov1beta2.MySQLClusterKind())
	delete(u.Object, "status")
	restore := map[string]any{
		"sourceName": "lost", "sourceNamespace": "default", "restorePoint": "2026-01-01T00:00:00Z", "jobConfig": map[string]any{}, "users": "alice@%, bob",
	}
	if err := unstructured.SetNestedMap(u.Object, restore, "spec", "restore"); err != nil {
		t.Fatal(err)
	}
	env.ExpectCreated(t, u)
	testenv.ExpectNoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
	if names, err := cluster.Spec.Restore.Users.Names(); err != nil || len(names) != 2 {
		t.Errorf("expected two users to restore, found %q and the error %v", names, err)
	}
}

// TestInstallKeepsCRDsOfOtherProjects runs torpor install on a hub with Hive's definition.
func TestInstallKeepsCRDsOfOtherProjects(t *testing.T) {
	t.Parallel()
	binary := testenv.TorporPath(t)
	env := testenv.StartAPIServer(t)
	env.InstallCRDs(t, crdFile("clusterdeployments"))
	theirs := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "clusterdeployments.hive.openshift.io"}}
	own := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "cfapps.korifi.cloudfoundry.org"}}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		flags []string
		says  string
	}{
		{[]string{"--dry-run"}, "cfapps.korifi.cloudfoundry.org: absent; would be installed"},
		{nil, "cfapps.korifi.cloudfoundry.org: absent; installed"},
		{nil, "cfapps.korifi.cloudfoundry.org: current"},
	} {
		p := testenv.StartProcess(t, binary, append([]string{"install", "--kubeconfig", env.KubeconfigPath(t)}, row.flags...), nil)
		p.WaitForLine(t, row.says)
		lacks := strings.Split(p.WaitForLine(t, "clusterdeployments.hive.openshift.io: another project's, written by foreign.test; not changed; without Torpor's fields "), ", ")
		if !slices.Contains(lacks, "status.conditions[].observedGeneration") || !slices.Contains(lacks, "status.hibernation") {
			t.Errorf("%v: expected Torpor to miss the observed generation of conditions and status.hibernation, found %q", row.flags, lacks)
		}
		if code := p.ExitCode(); code != 4 {
			t.Errorf("%v: expected the exit code 4, found %d", row.flags, code)
		}
	}
	if err := errors.Join(env.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs), env.Client.Get(t.Context(), client.ObjectKeyFromObject(own), own)); err != nil {
		t.Fatal(err)
	}
	if _, kept := theirs.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["manageDNS"]; !kept || theirs.Labels["app.kubernetes.io/part-of"] != "" {
		t.Error("expected Hive's definition to stay as it is, found it changed")
	}
	if own.Labels["app.kubernetes.io/part-of"] != "torpor" || own.Labels["app.kubernetes.io/version"] == "" {
		t.Errorf("expected the labels of the definition's owner, found %v", own.Labels)
	}
}
