// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

func TestHubServesInstalledCRDs(t *testing.T) {
	hub := StartAPIServer(t)
	list := func() error { return hub.Client.List(t.Context(), &hivev1.ClusterDeploymentList{}) }
	if err := list(); !meta.IsNoMatchError(err) {
		t.Errorf("without CRDs: %v, want no match", err)
	}
	// The API server warns of unknown formats in schemas, for example.
	warnings := &warningList{}
	hub.Config.WarningHandler = warnings
	hub.InstallCRDs(t)
	if found := warnings.list(); len(found) > 0 {
		t.Errorf("expected CRDs without warnings, found %q", found)
	}
	if err := list(); err != nil {
		t.Errorf("with CRDs: %v", err)
	}
	hub.RemoveCRDs(t)
	if err := list(); err == nil {
		t.Error("after the removal: no error")
	}
}

// warningList collects the warnings of an API server.
type warningList struct {
	mu    sync.Mutex
	texts []string
}

func (w *warningList) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warningList) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.texts)
}

func TestProgramPathOfAMissingFileFails(t *testing.T) {
	t.Setenv("TORPOR_HELM", "")
	if r := runRecorded(t, HelmPath); !r.isSkipped || r.text != "TORPOR_HELM is not set: expected the path of helm; build it with `make helm`, run with `make test`" {
		t.Errorf("without a path: expected a skip that names the variable, found %+v", r)
	}
	t.Setenv("TORPOR_BINARY", filepath.Join(t.TempDir(), "torpor"))
	if r := runRecorded(t, TorporPath); !r.isFailed || r.isSkipped {
		t.Errorf("with the path of a missing file: expected a failure, found %+v", r)
	}
}

// recordedTest is a testing.TB that records how a helper ends the test.
type recordedTest struct {
	testing.TB
	isSkipped, isFailed bool
	text                string
}

func (r *recordedTest) Helper() {}

func (r *recordedTest) Skipf(format string, args ...any) {
	r.isSkipped, r.text = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recordedTest) Fatalf(format string, args ...any) {
	r.isFailed, r.text = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func runRecorded(t *testing.T, find func(testing.TB) string) *recordedTest {
	t.Helper()
	r, done := &recordedTest{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		find(r)
	}()
	<-done
	return r
}

func TestCloudIsCountedAndDisturbed(t *testing.T) {
	cloud := StartCloud(t)
	ids := cloud.RunInstances(t, "a-1", 2)
	cloud.RunInstances(t, "b-1", 1)
	var found []string
	for _, i := range cloud.ListInstances(t, "a-1") {
		found = append(found, i.ID)
	}
	if !slices.Equal(ids, found) {
		t.Errorf("machines of a-1: %v, want %v", found, ids)
	}
	if n := cloud.CountCalls(t)["RunInstances"]; n != 3 {
		t.Errorf("RunInstances was called %d times, want 3", n)
	}
	cloud.SetLatency(t, time.Hour, time.Hour)
	cloud.InjectFault(t, CloudFault{Action: "RunInstances", Code: "InsufficientInstanceCapacity", Delay: "1ms"})
	cloud.ClearFaults(t)
	cloud.ResetCalls(t)
	cloud.runInstance(t, "a-1", "late")
	if n := cloud.CountCalls(t)["RunInstances"]; n != 1 {
		t.Errorf("RunInstances was called %d times since the reset, want 1", n)
	}
	if err := cloud.ExpectState(t, "a-1", "running"); err == nil {
		t.Error("a machine that takes an hour to start runs already")
	}
}

func TestCreateTargetClusterRegistersItInTheHub(t *testing.T) {
	hub := StartAPIServer(t)
	hub.InstallCRDs(t)
	c := CreateTargetCluster(t, hub, StartCloud(t, "--allow-commands"), ClusterOptions{Name: "sleepy", Nodes: 1, Certificates: time.Minute})
	var nodes corev1.NodeList
	if err := c.Client.List(t.Context(), &nodes); err != nil || len(nodes.Items) != 1 {
		t.Errorf("expected one node, found %d (%v)", len(nodes.Items), err)
	}
	var cd hivev1.ClusterDeployment
	ExpectNoError(t, hub.Client.Get(t.Context(), types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, &cd))
	if cd.Spec.ClusterMetadata.InfraID != c.InfraID {
		t.Errorf("infraID %q, want %q", cd.Spec.ClusterMetadata.InfraID, c.InfraID)
	}
}

func TestProcessIsKilledAndReports(t *testing.T) {
	p := StartProcess(t, "/bin/sh", []string{"-c", `echo "hello: $WHO"; exec sleep 600`}, []string{"WHO=world"})
	p.WaitForLine(t, "hello: world")
	p.KillAtOnce(t)
	if code := p.ExitCode(); code != -1 {
		t.Errorf("exit code %d, want -1 for a killed process", code)
	}
	left := 3
	Eventually(t, "three times", func() error {
		if left--; left > 0 {
			return errors.New(fmt.Sprint(left, " left"))
		}
		return nil
	})
	if left != 0 {
		t.Errorf("%d tries left, want 0", left)
	}
}

// TestAnAPIServerThatGivesUpIsStartedAgain replaces the server with a program that gives up once, as an API server
// does on a busy machine.
func TestAnAPIServerThatGivesUpIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	ExpectNoError(t, clientcmd.WriteToFile(*config, filepath.Join(dir, "kubeconfig")))
	program := fmt.Sprintf(`#!/bin/sh
if [ ! -e %[1]s/tried ]; then
  touch %[1]s/tried
  echo 'F1126 13:27:12.259873 13521 hooks.go:203] PostStartHook "rbac/bootstrap-roles" failed: unable to initialize roles: timed out waiting for the condition' >&2
  exit 255
fi
echo "kubeconfig: %[1]s/kubeconfig"
exec sleep 600
`, dir)
	ExpectNoError(t, os.WriteFile(filepath.Join(dir, "local"), []byte(program), 0o700))
	t.Setenv("TORPOR_LOCAL", filepath.Join(dir, "local"))
	ExpectEqual(t, "the server that was started then", "https://127.0.0.1:1", StartAPIServer(t).Config.Host)
}

func TestSharedStartsOnceAndOutlivesTheTest(t *testing.T) {
	var suite Suite
	starts, ended := 0, false
	shared := NewShared(&suite, func(t testing.TB) string {
		starts++
		t.Cleanup(func() { ended = true })
		return t.TempDir()
	})
	var dirs []string
	for range 2 {
		t.Run("a test of the package", func(t *testing.T) { dirs = append(dirs, shared.Get(t)) })
	}
	if starts != 1 || ended || dirs[0] == "" || dirs[0] != dirs[1] {
		t.Errorf("expected one start, which goes on, found %d, ended %t, folders %q", starts, ended, dirs)
	}
	suite.runCleanups()
	if !ended || isFolder(dirs[0]) {
		t.Errorf("expected an end without a folder left behind, found ended %t", ended)
	}
}

func TestSuiteEndsInReverseOrder(t *testing.T) {
	var suite Suite
	var order []int
	NewShared(&suite, func(t testing.TB) int {
		for i := range 3 {
			t.Cleanup(func() { order = append(order, i) })
		}
		return 0
	}).Get(t)
	suite.runCleanups()
	if !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("expected the last that started to end first, found %v", order)
	}
}

func TestSharedThatIsSkippedSkipsEveryTest(t *testing.T) {
	var suite Suite
	shared := NewShared(&suite, func(t testing.TB) int {
		t.Skip("there is no server")
		return 0
	})
	for range 2 {
		var skipped bool
		t.Run("a test of the package", func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			shared.Get(t)
		})
		if !skipped {
			t.Error("expected the test to be skipped")
		}
	}
}
