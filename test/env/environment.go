// SPDX-License-Identifier: Apache-2.0

// Package env gives tests an environment: a real API server with the repository's CRDs, controllers that
// run in the test's own process, a simulated cloud, target clusters on it, and processes that end with the
// test. Only tests import it. It starts the repository's own binary local, whose path is in the environment
// variable TORPOR_LOCAL; tests are skipped without it. docs/testing.md shows how the parts fit together.
package env

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
)

func localBinary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("TORPOR_LOCAL")
	if path == "" {
		t.Skip("TORPOR_LOCAL is not set: expected the path of the binary local; build it with `make local`, run with `make test`")
	}
	return path
}

// KubectlPath returns the path of kubectl, which is built with the binary local.
func KubectlPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(filepath.Dir(localBinary(t)), "kubectl")
}

// TorporPath returns the path of the binary torpor. It skips the test if TORPOR_BINARY is not set.
func TorporPath(t testing.TB) string {
	t.Helper()
	return programPath(t, "TORPOR_BINARY", "torpor")
}

// HelmPath returns the path of helm. It skips the test if TORPOR_HELM is not set.
func HelmPath(t testing.TB) string {
	t.Helper()
	return programPath(t, "TORPOR_HELM", "helm")
}

// programPath returns the path in an environment variable. It skips the test if the variable is not set, and fails
// it if there is no file at the path, because then the build has failed or the path is wrong.
func programPath(t testing.TB, variable, target string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s is not set: expected the path of %s; build it with `make %s`, run with `make test`", variable, target, target)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s: expected the path of %s, found %v; build it with `make %s`", variable, target, err, target)
	}
	return path
}

// callTimeout is the time limit of each request from a test to one of the test's servers.
const callTimeout = time.Minute

// Environment is a real API server with its etcd, whose processes end with the test, and an administrator's client
// for it. No controllers run unless a test starts them.
type Environment struct {
	*Process
	// Config has administrator access. Copy it to change it.
	Config *rest.Config
	// Client reads and writes directly, without a cache.
	Client client.Client

	dir string
}

// Start starts an API server that serves every CRD of the repository. It takes about five seconds: share one between
// subtests, or between the tests of a package with a Suite.
func Start(t testing.TB) *Environment {
	t.Helper()
	e := StartAPIServer(t)
	e.InstallCRDs(t)
	return e
}

// StartAPIServer starts an API server without any CRD.
func StartAPIServer(t testing.TB) *Environment {
	t.Helper()
	return startEnvironment(t, "--api-only")
}

// StartOlder starts an API server that serves every CRD of the repository, and the Kubernetes API of an older
// version, such as 1.35.
func StartOlder(t testing.TB, version string) *Environment {
	t.Helper()
	e := StartOlderAPIServer(t, version)
	e.InstallCRDs(t)
	return e
}

// StartOlderAPIServer starts an API server of an older version without any CRD.
func StartOlderAPIServer(t testing.TB, version string) *Environment {
	t.Helper()
	return startEnvironment(t, "--api-only", "--emulated-version", version)
}

// StartOlderControlPlane starts an API server of an older version without any CRD, and the controllers of
// Kubernetes.
func StartOlderControlPlane(t testing.TB, version string) *Environment {
	t.Helper()
	return startEnvironment(t, "--emulated-version", version)
}

// StartControlPlane starts an API server without any CRD, the controllers and the scheduler of Kubernetes, and nodes
// that report every Pod as running and serve a log for it, but run no containers.
func StartControlPlane(t testing.TB, nodes int) *Environment {
	t.Helper()
	e := startEnvironment(t, "--approve-serving")
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		p := StartProcess(t, localBinary(t), []string{
			"node", "--name", name, "--dir", t.TempDir(), "--bootstrap-kubeconfig", e.KubeconfigPath(t), "--heartbeat", "2s",
		}, nil)
		t.Cleanup(func() { p.KillAtOnce(t) })
		Eventually(t, name+" is ready", func() error { return e.nodeIsReady(t, name) })
	}
	return e
}

// StartBridgedControlPlane starts an API server without any CRD, the controllers and the scheduler of Kubernetes on
// the bridge to real machines. It requires root.
func StartBridgedControlPlane(t testing.TB) *Environment {
	t.Helper()
	e := startEnvironment(t, "--address", "10.250.0.1")
	t.Cleanup(func() { e.Stop(t) }) // Only a graceful shutdown removes the bridge.
	return e
}

func (e *Environment) nodeIsReady(t testing.TB, name string) error {
	t.Helper()
	var node corev1.Node
	if err := e.Client.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
			return nil
		}
	}
	return errors.New("expected the node to be ready and without taints, found it is not")
}

// hubCollection makes Go's garbage collector run less often in a test's control plane, as in a real control plane with
// a larger heap.
const hubCollection = "GOGC=400"

const (
	// startAttempts is how often the start of an API server is attempted. On a busy machine the API server may give up,
	// because it waits only half a minute for its own roles. No flag changes this limit.
	startAttempts = 3
	// kubeconfigPrefix precedes the path that a control plane prints when it is ready.
	kubeconfigPrefix = "kubeconfig: "
)

// startsOrGivesUp waits until a control plane is ready or has ended. It returns false if the API server gave up
// because the machine was too busy, so that another attempt makes sense.
func (p *Process) startsOrGivesUp(t testing.TB) (isDecided bool) {
	t.Helper()
	Eventually(t, p.Name+" starts", func() error {
		if _, isReady := p.findLine(kubeconfigPrefix); isReady {
			isDecided = true
			return nil
		}
		select {
		case <-p.done:
			isDecided = !strings.Contains(p.LastOutput(), `PostStartHook "rbac/bootstrap-roles" failed`)
			return nil
		default:
			return errors.New("not yet")
		}
	})
	return isDecided
}

func startEnvironment(t testing.TB, flags ...string) *Environment {
	t.Helper()
	e := &Environment{}
	for range startAttempts {
		e.dir = t.TempDir()
		p := StartProcess(t, localBinary(t), append([]string{"control-plane", "--dir", e.dir}, flags...), []string{hubCollection})
		// A graceful shutdown takes seconds, and only saves data that no test reads.
		t.Cleanup(func() { p.KillAtOnce(t) })
		if e.Process = p; p.startsOrGivesUp(t) {
			break
		}
	}
	file := e.WaitForLine(t, kubeconfigPrefix)
	var err error
	if e.Config, err = clientcmd.BuildConfigFromFlags("", file); err != nil {
		t.Fatalf("read the hub's kubeconfig: %v", err)
	}
	// Client-side rate limits would only slow tests down.
	e.Config.QPS = -1
	e.Client = newClient(t, e.Config)
	return e
}

// KubeconfigPath returns the path of the administrator's kubeconfig.
func (e *Environment) KubeconfigPath(testing.TB) string {
	return filepath.Join(e.dir, "admin.kubeconfig")
}

// InstallCRDs installs every CRD of config/crd, or those of the given files and folders, and returns when they are
// served. A CRD of the same name is replaced.
func (e *Environment) InstallCRDs(t testing.TB, paths ...string) {
	t.Helper()
	if len(paths) == 0 {
		paths = []string{crdFolder(t)}
	}
	options := envtest.CRDInstallOptions{Paths: paths, ErrorIfPathMissing: true, MaxTime: eventuallyTimeout}
	if _, err := envtest.InstallCRDs(e.Config, options); err != nil {
		t.Fatalf("install CRDs: %v", err)
	}
}

// RemoveCRDs deletes every CRD and returns when they are gone, with all their objects.
func (e *Environment) RemoveCRDs(t testing.TB) {
	t.Helper()
	var all apiextensionsv1.CustomResourceDefinitionList
	if err := e.Client.List(t.Context(), &all); err != nil {
		t.Fatalf("list CRDs: %v", err)
	}
	for i := range all.Items {
		crd := &all.Items[i]
		if err := e.Client.Delete(t.Context(), crd); err != nil {
			t.Fatalf("remove CRD: %v", err)
		}
		looks := 0
		Eventually(t, "the CRD "+crd.Name+" is gone", func() error {
			if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); k8serrors.IsNotFound(err) {
				return nil
			}
			if looks++; looks%nudgeInterval == 0 {
				return errors.Join(errors.New("the CRD is still there"), e.nudgeCRD(t, crd))
			}
			return errors.New("the CRD is still there")
		})
	}
}

// nudgeInterval is the number of polls after which a CRD is nudged again.
const nudgeInterval = 40

// nudgeCRD changes a CRD whose deletion hangs. After a conflict with another controller, the API server's finalizer
// waits for the next change to the CRD, and ignores changes to its own condition. Otherwise the deletion would
// continue only at the next resync, up to five minutes later.
func (e *Environment) nudgeCRD(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) error {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"nudge":%q}}}`, crd.ResourceVersion)
	return client.IgnoreNotFound(e.Client.Patch(t.Context(), crd, client.RawPatch(types.MergePatchType, patch)))
}

// CreateNamespace creates a namespace for a test and returns its name. The namespace is never deleted, because no
// controller for this runs.
func (e *Environment) CreateNamespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := e.Client.Create(t.Context(), ns); err != nil {
		t.Fatalf("make namespace: %v", err)
	}
	return ns.Name
}

// DeleteAfterTest deletes an object when the test ends; an object that is already gone is not an error.
func (e *Environment) DeleteAfterTest(t testing.TB, obj client.Object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := e.Client.Delete(ctx, obj); err != nil && !k8serrors.IsNotFound(err) {
			t.Errorf("delete %s: %v", obj.GetName(), err)
		}
	})
}

func newClient(t testing.TB, cfg *rest.Config) client.Client {
	t.Helper()
	known := k8sruntime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), apiextensionsv1.AddToScheme(known), hivev1.AddToScheme(known), hiveinternalv1alpha1.AddToScheme(known), mocov1beta2.AddToScheme(known),
		korifiv1alpha1.AddToScheme(known), eiriniv1.AddToScheme(known), torporv1alpha1.AddToScheme(known)); err != nil {
		t.Fatalf("register kinds: %v", err)
	}
	cfg = rest.CopyConfig(cfg)
	// A request to a hanging server must time out before the test binary does.
	cfg.Timeout = callTimeout
	c, err := client.New(cfg, client.Options{Scheme: known})
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	return c
}

// crdFolder finds config/crd in a parent of the folder in which the test runs.
func crdFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	ExpectNoError(t, err)
	for ; filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
		if found := filepath.Join(dir, "config", "crd"); isFolder(found) {
			return found
		}
	}
	t.Fatal("expected config/crd in a folder above the test's, found none; run the test inside the repository")
	return ""
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// StartManager runs a manager in the test's own process, where the race detector covers it, until the test ends or stop
// is called. The setup function registers the controllers; adjust changes options before the manager is created. It
// knows every kind of the repository, serves no metrics, and shows the end of its log if the test fails. Like Torpor's
// own manager, it can have conditional groups.
func StartManager(t testing.TB, env *Environment, setup func(manager.Manager) error, adjust ...func(*manager.Options)) (stop func()) {
	t.Helper()
	options := manager.Options{
		Scheme:  env.Client.Scheme(),
		Metrics: server.Options{BindAddress: "0"},
		// Several tests of one process run controllers of the same name.
		Controller: config.Controller{SkipNameValidation: new(true)},
	}
	for _, change := range adjust {
		change(&options)
	}
	if options.Logger.GetSink() == nil {
		log := &LogBuffer{}
		log.ShowOnFailure(t, "the manager")
		options.Logger = log.Logger(0)
	}
	mgr, err := conditional.NewManager(env.Config, options)
	if err != nil {
		t.Fatalf("make manager: %v", err)
	}
	if err := setup(mgr); err != nil {
		t.Fatalf("set up controllers: %v", err)
	}
	return RunInBackground(t, "the manager", mgr.Start)
}

// RunInBackground runs a function until the test ends or stop is called. Its context is then cancelled, and the
// function must return, so that it does not outlive the test. If it returns an error, the test fails.
func RunInBackground(t testing.TB, name string, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	// The test's own context ends before its cleanups, which may still need the function.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s ended with: %v", name, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// WithTransport returns a copy of the environment whose requests pass through a transport of the test. The transport
// may count, delay or fail requests. Only components that are started with the returned environment use the transport,
// not its Client.
func (e *Environment) WithTransport(wrap func(http.RoundTripper) http.RoundTripper) *Environment {
	wrapped := *e
	wrapped.Config = rest.CopyConfig(e.Config)
	wrapped.Config.Wrap(wrap)
	return &wrapped
}

// ImpersonateUser returns a configuration that acts as another user, with only the permissions of that user.
func (e *Environment) ImpersonateUser(name string, groups ...string) *rest.Config {
	cfg := rest.CopyConfig(e.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	return cfg
}

// Suite holds values that the tests of a package share, such as a control plane and its manager, so that each test
// function can run alone, and all test functions together need only one start:
//
//	var (
//		suite  testenv.Suite
//		shared = testenv.NewShared(&suite, newEnv) // func newEnv(t testing.TB) *env
//	)
//
//	func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }
//
//	func TestSomething(t *testing.T) { e := shared.Get(t) ... }
type Suite struct {
	mu       sync.Mutex
	cleanups []func()
	failed   bool
}

// IsFull reports whether tests cover everything, as `make test-full` does: every fault point and every repetition.
// Otherwise they test each promise once.
func IsFull() bool { return os.Getenv("TORPOR_E2E") == "full" }

// CountRepetitions returns how often a test repeats its check: all times in a full run, and otherwise a few times.
func CountRepetitions(few, all int) int {
	if IsFull() {
		return all
	}
	return few
}

// SetParallel lets n tests of the package run at the same time, unless the flag -parallel sets another number. It is
// for tests that mostly wait for other processes and intervals. It must be called before the tests run.
func SetParallel(n int) {
	// The command line is parsed later and takes precedence. The error is always nil, because the flag exists and
	// takes a number.
	_ = flag.Set("test.parallel", strconv.Itoa(n))
}

// Run runs the tests of the package, then ends the shared values, and returns the exit code of the process.
func (s *Suite) Run(m *testing.M) int {
	code := m.Run()
	s.runCleanups()
	if s.failed && code == 0 {
		return 1
	}
	return code
}

// startShared calls start with a TB whose cleanups run after the last test of the package. It returns whether start has
// returned, and the reason for a skip.
func (s *Suite) startShared(t testing.TB, start func(testing.TB)) (isStarted bool, skipped string) {
	t.Helper()
	ended := make(chan struct{})
	ctx := context.WithoutCancel(t.Context())
	tb := &suiteTB{TB: t, suite: s, context: func() context.Context { return ctx }}
	// FailNow and SkipNow end their goroutine, so start runs in a separate one.
	go func() {
		defer close(ended)
		start(tb)
		isStarted = true
	}()
	<-ended
	return isStarted, tb.skipped
}

// runCleanups calls the cleanups in reverse order. A cleanup may add further cleanups.
func (s *Suite) runCleanups() {
	for {
		s.mu.Lock()
		last := len(s.cleanups) - 1
		if last < 0 {
			s.mu.Unlock()
			return
		}
		cleanup := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		s.mu.Unlock()
		cleanup()
	}
}

// Shared is a value that starts with the first test that gets it, and ends after the last test of the
// package.
type Shared[T any] struct {
	suite *Suite
	start func(testing.TB) T

	once    sync.Once
	value   T
	started bool
	skipped string
}

// NewShared returns a shared value that start creates. start must skip or fail only through the TB that it receives.
func NewShared[T any](suite *Suite, start func(testing.TB) T) *Shared[T] {
	return &Shared[T]{suite: suite, start: start}
}

// Get returns the value, which the first call creates. If that call has failed or was skipped, every calling test fails
// or is skipped.
func (s *Shared[T]) Get(t testing.TB) T {
	t.Helper()
	s.once.Do(func() {
		s.started, s.skipped = s.suite.startShared(t, func(tb testing.TB) { s.value = s.start(tb) })
	})
	requireStarted(t, s.started, s.skipped)
	return s.value
}

// requireStarted skips or fails the test, as the results of startShared require.
func requireStarted(t testing.TB, isStarted bool, skipped string) {
	t.Helper()
	switch {
	case skipped != "":
		t.Skip(skipped)
	case !isStarted:
		t.Fatal("expected the shared value of this package's tests to start, found that it failed; see the first test's log")
	}
}

// suiteTB is the testing.TB of values that outlive a test. It embeds the TB of the first test, because a type outside
// package testing cannot implement the interface otherwise. No embedded method is used, because that test ends long
// before the suite.
type suiteTB struct {
	testing.TB
	suite   *Suite
	context func() context.Context
	skipped string
}

func (s *suiteTB) Helper()                  {}
func (s *suiteTB) Name() string             { return "suite" }
func (s *suiteTB) Context() context.Context { return s.context() }
func (s *suiteTB) Output() io.Writer        { return os.Stderr }
func (s *suiteTB) Skipped() bool            { return s.skipped != "" }
func (s *suiteTB) Log(args ...any)          { fmt.Fprintln(os.Stderr, args...) }
func (s *suiteTB) Error(args ...any)        { s.Log(args...); s.Fail() }
func (s *suiteTB) Fatal(args ...any)        { s.Log(args...); s.FailNow() }
func (s *suiteTB) Skip(args ...any)         { s.skipped = fmt.Sprint(args...); s.SkipNow() }
func (s *suiteTB) SkipNow()                 { runtime.Goexit() }
func (s *suiteTB) FailNow()                 { s.Fail(); runtime.Goexit() }

func (s *suiteTB) Logf(format string, args ...any)   { s.Log(fmt.Sprintf(format, args...)) }
func (s *suiteTB) Errorf(format string, args ...any) { s.Error(fmt.Sprintf(format, args...)) }
func (s *suiteTB) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }
func (s *suiteTB) Skipf(format string, args ...any)  { s.Skip(fmt.Sprintf(format, args...)) }

func (s *suiteTB) Fail() {
	s.suite.mu.Lock()
	defer s.suite.mu.Unlock()
	s.suite.failed = true
}

func (s *suiteTB) Failed() bool {
	s.suite.mu.Lock()
	defer s.suite.mu.Unlock()
	return s.suite.failed
}

func (s *suiteTB) Cleanup(cleanup func()) {
	s.suite.mu.Lock()
	defer s.suite.mu.Unlock()
	s.suite.cleanups = append(s.suite.cleanups, cleanup)
}

func (s *suiteTB) TempDir() string {
	dir, err := os.MkdirTemp("", "suite-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.Error(err)
		}
	})
	return dir
}

// Setenv sets a variable for the rest of the package's tests.
func (s *suiteTB) Setenv(name, value string) {
	if err := os.Setenv(name, value); err != nil {
		s.Fatal(err)
	}
}

// FindHTTPRouteCRD returns the file in the Gateway API's module that defines HTTPRoutes. It runs the go command to find
// the path, because tests may be compiled with -trimpath.
func FindHTTPRouteCRD(t testing.TB) string {
	t.Helper()
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	ExpectNoError(t, err)
	return filepath.Join(strings.TrimSpace(string(folder)), "config", "crd", "standard", "gateway.networking.k8s.io_httproutes.yaml")
}
