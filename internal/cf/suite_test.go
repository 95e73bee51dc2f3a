// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/manager"
	"github.com/torpor-dev/torpor/internal/testenv"
)

const (
	image              = "registry.example/app:1"
	started            = korifiv1alpha1.StartedState
	stopped            = korifiv1alpha1.StoppedState
	revisionAnnotation = korifiv1alpha1.RevisionAnnotation
)

// stage is a real control plane with a hollow node, and a manager that serves the admission too.
type stage struct {
	*testenv.Environment
	namespace string
	// log is what the manager of newStage has logged.
	log *record
	// address is where the admission is served.
	address string
}

// newStage has a manager in the test's own process, where the race detector sees it. There can be one in a process.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := newEmptyStage(t)
	s.log = &record{}
	o := manager.Options{
		MetricsAddress: "0", ProbeAddress: "0", WebhookAddress: s.address, Namespace: s.namespace,
		Log: slog.New(slog.NewMultiHandler(
			slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}), slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}),
		)),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	config := s.limited(t)
	go func() { done <- manager.Run(ctx, config, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	})
	s.awaitsAdmission(t)
	return s
}

// limited lets in with the rights of config/rbac and no more.
func (s *stage) limited(t *testing.T) *rest.Config {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.Unmarshal(file, role); err != nil {
		t.Fatal(err)
	}
	const user = "torpor-manager"
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if err := errors.Join(s.Client.Create(t.Context(), role), s.Client.Create(t.Context(), binding)); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

// newEmptyStage has no manager.
func newEmptyStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{Environment: testenv.StartControlPlane(t, 1), address: testenv.FreeAddress(t)}
	s.InstallCRDs(t)
	s.namespace = s.CreateNamespace(t)
	s.InstallWebhooks(t, "https://"+s.address, nil)
	return s
}

func (s *stage) awaitsAdmission(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "admission answers", func() error { return s.admits(t, korifiv1alpha1.FirstRevision) })
}

// admits says whether a new app gets the revision; without admission it gets none.
func (s *stage) admits(t *testing.T, want string) error {
	t.Helper()
	probe := &korifiv1alpha1.CFApp{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "probe"},
		Spec:       korifiv1alpha1.CFAppSpec{DisplayName: "probe", DesiredState: stopped, Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle}},
	}
	if err := s.Client.Create(t.Context(), probe, client.DryRunAll); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if found := probe.Annotations[revisionAnnotation]; found != want {
		return fmt.Errorf("expected revision %q, found %q", want, found)
	}
	return nil
}

// app is an app of a test with its only process.
type app struct {
	*stage
	name, process string
}

// options of an app; the zero value is one instance that is ready and gone at once, drained strictly.
type options struct {
	// command holds words that hollow nodes understand, such as HOLLOW_STOP=2s.
	command   string
	instances int32
	drain     korifiv1alpha1.Drain
	state     korifiv1alpha1.AppState
}

// newApp makes an app in the test's own name and returns when its process is there.
func (s *stage) newApp(t *testing.T, o options) *app {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ",", "", ":", "", "'", "").Replace(t.Name()))
	name = name[max(0, len(name)-30):]
	return s.newAppCalled(t, strings.Trim(name, "-"), o)
}

func (s *stage) newAppCalled(t *testing.T, name string, o options) *app {
	t.Helper()
	a := &app{stage: s, name: name, process: revision.ProcessName(name, korifiv1alpha1.WebProcess)}
	s.droplet(t, name, image)
	if o.state == "" {
		o.state = started
	}
	process := &korifiv1alpha1.CFProcess{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: a.process},
		Spec: korifiv1alpha1.CFProcessSpec{
			AppRef: korifiv1alpha1.Reference{Name: name}, ProcessType: korifiv1alpha1.WebProcess, Command: o.command,
			DesiredInstances: new(o.instances), MemoryMB: 16, DiskQuotaMB: 16,
		},
	}
	made := &korifiv1alpha1.CFApp{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: korifiv1alpha1.CFAppSpec{
			DisplayName: name, DesiredState: o.state, Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
			CurrentDropletRef: &korifiv1alpha1.Reference{Name: name}, Drain: o.drain,
		},
	}
	if err := errors.Join(s.Client.Create(t.Context(), process), s.Client.Create(t.Context(), made)); err != nil {
		t.Fatal(err)
	}
	return a
}

// droplet makes a CFBuild whose droplet is an image; without one it is made from code, which somebody else has to build.
func (s *stage) droplet(t *testing.T, name, image string) *korifiv1alpha1.CFBuild {
	t.Helper()
	build := &korifiv1alpha1.CFBuild{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: korifiv1alpha1.CFBuildSpec{
			PackageRef: korifiv1alpha1.Reference{Name: name}, AppRef: korifiv1alpha1.Reference{Name: name},
			Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
		},
	}
	pkg := &korifiv1alpha1.CFPackage{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: korifiv1alpha1.CFPackageSpec{
			Type: korifiv1alpha1.DockerPackage, AppRef: korifiv1alpha1.Reference{Name: name},
			Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: image}},
		},
	}
	if image == "" {
		pkg.Spec.Type = korifiv1alpha1.BitsPackage
	}
	if err := errors.Join(s.Client.Create(t.Context(), pkg), s.Client.Create(t.Context(), build)); err != nil {
		t.Fatal(err)
	}
	return build
}

// patch changes the app as kubectl would.
func (a *app) patch(t *testing.T, patch string) *korifiv1alpha1.CFApp {
	t.Helper()
	changed := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name}}
	if err := a.Client.Patch(t.Context(), changed, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	return changed
}

func (a *app) set(t *testing.T, state korifiv1alpha1.AppState) *korifiv1alpha1.CFApp {
	t.Helper()
	return a.patch(t, fmt.Sprintf(`{"spec":{"desiredState":%q}}`, state))
}

func (a *app) annotate(t *testing.T, key, value string) *korifiv1alpha1.CFApp {
	t.Helper()
	return a.patch(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

func (a *app) scale(t *testing.T, instances int) {
	t.Helper()
	process := &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.process}}
	patch := fmt.Appendf(nil, `{"spec":{"desiredInstances":%d}}`, instances)
	if err := a.Client.Patch(t.Context(), process, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

func (a *app) get(t *testing.T) *korifiv1alpha1.CFApp {
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

// awaits waits until the Ready condition of the app is what is expected of the current generation and revision.
func (a *app) awaits(t *testing.T, status metav1.ConditionStatus, reason string) {
	t.Helper()
	testenv.Eventually(t, a.name+" is "+reason, func() error {
		found := a.get(t)
		ready := meta.FindStatusCondition(found.Status.Conditions, korifiv1alpha1.ReadyCondition)
		if ready == nil || ready.Status != status || ready.Reason != reason || ready.ObservedGeneration != found.Generation ||
			revision.FormatRevision(found.Status.ObservedRevision) != found.Annotations[revisionAnnotation] {
			return fmt.Errorf("expected Ready=%s %s, found %+v at revision %s", status, reason, ready, found.Annotations[revisionAnnotation])
		}
		return nil
	})
}

func (a *app) awaitsRunning(t *testing.T) {
	t.Helper()
	a.awaits(t, metav1.ConditionTrue, korifiv1alpha1.RunningReason)
}

func (a *app) awaitsStopped(t *testing.T) {
	t.Helper()
	a.awaits(t, metav1.ConditionTrue, korifiv1alpha1.StoppedReason)
}

func (a *app) listPods(t *testing.T) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	a.list(t, &list)
	return list.Items
}

func (a *app) lrps(t *testing.T) []eiriniv1.LRP {
	t.Helper()
	var list eiriniv1.LRPList
	a.list(t, &list)
	return list.Items
}

func (a *app) list(t *testing.T, list client.ObjectList) {
	t.Helper()
	if err := a.Client.List(t.Context(), list, client.InNamespace(a.namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: a.name}); err != nil {
		t.Fatal(err)
	}
}

// gone says whether an object is gone.
func (s *stage) gone(t *testing.T, obj client.Object) error {
	t.Helper()
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); !k8serrors.IsNotFound(err) {
		return fmt.Errorf("expected it to be gone, found it (%w)", err)
	}
	return nil
}

func schemeOf(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), eiriniv1.AddToScheme(s), korifiv1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}
