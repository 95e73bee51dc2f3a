// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/manager"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// stopDelay is the time for which instances serve after they have left their Services.
	stopDelay          = time.Second
	image              = "registry.example/app:1"
	started            = korifiv1alpha1.StartedState
	stopped            = korifiv1alpha1.StoppedState
	revisionAnnotation = korifiv1alpha1.RevisionAnnotation
)

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, newEnv)
)

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// env is a real control plane with a hollow node, and a manager that also serves the admission webhooks.
type env struct {
	*testenv.Environment
	namespace string
	// log is the log of the manager that newEnv starts.
	log *testenv.LogBuffer
	// address is the address of the admission webhooks.
	address string
}

// newEnv runs a manager in the test process, where the race detector covers it. The manager has only the rights of
// config/rbac. A process can have only one manager, because metrics are registered once.
func newEnv(t testing.TB) *env {
	t.Helper()
	e := newEnvWithoutManager(t)
	e.log = &testenv.LogBuffer{}
	e.log.ShowOnFailure(t, "the manager")
	user := e.ApplyManagerRoles(t, e.namespace)
	e.ApplyFeatureRoles(t, e.namespace, "../kpack")
	options := manager.Options{
		MetricsAddress: "0", ProbeAddress: "0", Webhook: manager.WebhookOptions{Address: e.address}, IsolateSpaces: true, ImageRegistries: []string{"http://127.0.0.1"}, Namespace: e.namespace, Log: e.log.StructuredLogger(),
		InstanceStopDelay: stopDelay,
		Kpack: manager.KpackOptions{
			Repository: "registry.example.com/droplets", Builder: manager.DefaultKpackBuilder, ServiceAccount: manager.DefaultKpackServiceAccount,
		},
	}
	testenv.RunInBackground(t, "the manager", func(ctx context.Context) error { return manager.Run(ctx, e.ImpersonateUser(user), options) })
	e.WaitForAppAdmission(t, e.namespace, korifiv1alpha1.FirstRevision)
	return e
}

func newEnvWithoutManager(t testing.TB) *env {
	t.Helper()
	e := &env{Environment: testenv.StartControlPlane(t, 1), address: testenv.FreeAddress(t)}
	e.InstallCRDs(t)
	e.namespace = e.CreateNamespace(t)
	e.InstallWebhooks(t, "https://"+e.address, nil)
	return e
}

// app is a test app with one process.
type app struct {
	*env
	name, process string
}

// appOptions defines how an app starts. The zero value is one instance that starts and terminates immediately, with
// strict draining.
type appOptions struct {
	// command may contain settings for hollow nodes, such as HOLLOW_STOP=2s.
	command   string
	instances int32
	drain     korifiv1alpha1.Drain
	state     korifiv1alpha1.AppState
}

// createApp creates an app named after the test, and returns when its process exists.
func (e *env) createApp(t *testing.T, o appOptions) *app {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ",", "", ":", "", "'", "").Replace(t.Name()))
	name = name[max(0, len(name)-30):]
	return e.createAppNamed(t, strings.Trim(name, "-"), o)
}

func (e *env) createAppNamed(t *testing.T, name string, o appOptions) *app {
	t.Helper()
	a := &app{env: e, name: name, process: revision.ProcessName(name, korifiv1alpha1.WebProcess)}
	e.createBuild(t, name, image)
	if o.state == "" {
		o.state = started
	}
	process := &korifiv1alpha1.CFProcess{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: a.process},
		Spec: korifiv1alpha1.CFProcessSpec{
			AppRef: korifiv1alpha1.Reference{Name: name}, ProcessType: korifiv1alpha1.WebProcess, Command: o.command,
			DesiredInstances: new(o.instances), MemoryMB: 16, DiskQuotaMB: 16,
		},
	}
	made := testenv.BuildCFApp(types.NamespacedName{Namespace: e.namespace, Name: name})
	made.Spec.DesiredState, made.Spec.Drain, made.Spec.CurrentDropletRef = o.state, o.drain, &korifiv1alpha1.Reference{Name: name}
	e.ExpectCreated(t, process, made)
	return a
}

// createBuild creates a CFBuild with an image as its droplet. Without an image, its package holds code, which an
// external builder has to build.
func (e *env) createBuild(t *testing.T, name, image string) *korifiv1alpha1.CFBuild {
	t.Helper()
	return e.createBuildOf(t, name, name, image)
}

// createBuildOf creates a CFBuild of an app that may have other builds.
func (e *env) createBuildOf(t *testing.T, app, name, image string) *korifiv1alpha1.CFBuild {
	t.Helper()
	build := &korifiv1alpha1.CFBuild{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name},
		Spec: korifiv1alpha1.CFBuildSpec{
			PackageRef: korifiv1alpha1.Reference{Name: name}, AppRef: korifiv1alpha1.Reference{Name: app},
			Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
		},
	}
	pkg := &korifiv1alpha1.CFPackage{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name},
		Spec: korifiv1alpha1.CFPackageSpec{
			Type: korifiv1alpha1.DockerPackage, AppRef: korifiv1alpha1.Reference{Name: app},
			Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: image}},
		},
	}
	if image == "" {
		build.Spec.Lifecycle.Type = korifiv1alpha1.BuildpackLifecycle
		pkg.Spec.Type = korifiv1alpha1.BitsPackage
	}
	e.ExpectCreated(t, pkg, build)
	return build
}

// patchApp patches the app as kubectl does.
func (a *app) patchApp(t *testing.T, patch string) *korifiv1alpha1.CFApp {
	t.Helper()
	changed := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name}}
	if err := a.Client.Patch(t.Context(), changed, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	return changed
}

func (a *app) setState(t *testing.T, state korifiv1alpha1.AppState) *korifiv1alpha1.CFApp {
	t.Helper()
	return a.patchApp(t, fmt.Sprintf(`{"spec":{"desiredState":%q}}`, state))
}

func (a *app) annotateApp(t *testing.T, key, value string) *korifiv1alpha1.CFApp {
	t.Helper()
	return a.patchApp(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

func (a *app) setInstances(t *testing.T, instances int) {
	t.Helper()
	a.patchProcess(t, fmt.Sprintf(`{"spec":{"desiredInstances":%d}}`, instances))
}

func (a *app) patchProcess(t *testing.T, patch string) {
	t.Helper()
	process := &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.process}}
	if err := a.Client.Patch(t.Context(), process, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func (a *app) getApp(t *testing.T) *korifiv1alpha1.CFApp {
	t.Helper()
	found := &korifiv1alpha1.CFApp{}
	if err := a.Client.Get(t.Context(), client.ObjectKey{Namespace: a.namespace, Name: a.name}, found); err != nil {
		t.Fatal(err)
	}
	return found
}

func (a *app) getProcess(t *testing.T) *korifiv1alpha1.CFProcess {
	t.Helper()
	found := &korifiv1alpha1.CFProcess{}
	if err := a.Client.Get(t.Context(), client.ObjectKey{Namespace: a.namespace, Name: a.process}, found); err != nil {
		t.Fatal(err)
	}
	return found
}

// waitForReady waits until the app's Ready condition has the status and the reason for the current generation and
// revision.
func (a *app) waitForReady(t *testing.T, status metav1.ConditionStatus, reason string) {
	t.Helper()
	testenv.Eventually(t, a.name+" is "+reason, func() error {
		found := a.getApp(t)
		ready := meta.FindStatusCondition(found.Status.Conditions, korifiv1alpha1.ReadyCondition)
		if ready == nil || ready.Status != status || ready.Reason != reason || ready.ObservedGeneration != found.Generation ||
			revision.FormatRevision(found.Status.ObservedRevision) != found.Annotations[revisionAnnotation] {
			return fmt.Errorf("expected Ready=%s %s, found %+v at revision %s", status, reason, ready, found.Annotations[revisionAnnotation])
		}
		return nil
	})
}

func (a *app) waitUntilRunning(t *testing.T) {
	t.Helper()
	a.waitForReady(t, metav1.ConditionTrue, korifiv1alpha1.RunningReason)
}

func (a *app) waitUntilStopped(t *testing.T) {
	t.Helper()
	a.waitForReady(t, metav1.ConditionTrue, korifiv1alpha1.StoppedReason)
}

func (a *app) listPods(t *testing.T) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	a.listObjects(t, &list)
	return list.Items
}

func (a *app) listLRPs(t *testing.T) []eiriniv1.LRP {
	t.Helper()
	var list eiriniv1.LRPList
	a.listObjects(t, &list)
	return list.Items
}

func (a *app) listObjects(t *testing.T, list client.ObjectList) {
	t.Helper()
	if err := a.Client.List(t.Context(), list, client.InNamespace(a.namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: a.name}); err != nil {
		t.Fatal(err)
	}
}

// requireGone returns an error if an object exists.
func (e *env) requireGone(t *testing.T, obj client.Object) error {
	t.Helper()
	if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); !k8serrors.IsNotFound(err) {
		return fmt.Errorf("expected the object to be gone, found it (%w)", err)
	}
	return nil
}
