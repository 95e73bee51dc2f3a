// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/torpor-dev/torpor/internal/testenv"
)

const (
	// commandTimeout is far above what any single command takes.
	commandTimeout = 4 * time.Minute
	// stayTime is how long a thing is watched that must not happen.
	stayTime = 5 * time.Second
	// bridgeAddress is that of the machine on the bridge to the node.
	bridgeAddress = "10.250.0.1"
)

// podsEnv is a cluster with real pods, and torpor beside it with exactly the rights that it is installed with.
type podsEnv struct {
	dir, programs, tools string
	metrics              string
	began                time.Time
}

// newPodsEnv skips the test where there can be no real pods.
func newPodsEnv(t *testing.T) *podsEnv {
	t.Helper()
	if os.Getenv("TORPOR_E2E") != "pods" {
		t.Skip("TORPOR_E2E is not pods: these stories take minutes and the machine's only node; run make e2e-pods")
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: a real node makes namespaces and mounts")
	}
	local, torpor := os.Getenv("TORPOR_LOCAL"), os.Getenv("TORPOR_BINARY")
	for what, file := range map[string]string{
		"TORPOR_LOCAL": local, "TORPOR_BINARY": torpor, "TORPOR_S3": os.Getenv("TORPOR_S3"),
		"TORPOR_NODE":  filepath.Join(os.Getenv("TORPOR_NODE"), "names/iptables"),
		"TORPOR_MYSQL": filepath.Join(os.Getenv("TORPOR_MYSQL"), "usr/sbin/mysqld"),
	} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("no real pods: %s leads to no %q: run make e2e-pods as root on Debian", what, file)
		}
	}
	return &podsEnv{
		dir: filepath.Join(t.TempDir(), "pods"), programs: filepath.Dir(local), tools: filepath.Dir(torpor), began: time.Now(),
	}
}

func (w *podsEnv) kubeconfig() string { return filepath.Join(w.dir, "admin.kubeconfig") }

// tryRun runs a program as a person does, who has all of them on the PATH.
func (w *podsEnv) tryRun(t *testing.T, stdin, program string, args ...string) (string, error) {
	t.Helper()
	// What is cleaned up is cleaned up after the test's context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig(), "PATH="+w.tools+":"+w.programs+":"+os.Getenv("PATH"))
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(program), strings.Join(args, " "), err, out, problems.String())
	}
	return strings.TrimSpace(string(out)), err
}

func (w *podsEnv) mustRun(t *testing.T, stdin, program string, args ...string) string {
	t.Helper()
	out, err := w.tryRun(t, stdin, program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *podsEnv) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return w.mustRun(t, "", filepath.Join(w.programs, "kubectl"), args...)
}

// apply sends a manifest of testdata, in which each word of the pairs is replaced.
func (w *podsEnv) apply(t *testing.T, file string, words ...string) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	w.mustRun(t, strings.NewReplacer(words...).Replace(string(manifest)), filepath.Join(w.programs, "kubectl"), "apply", "-f", "-")
}

// logf says what was seen, and how long into the test.
func (w *podsEnv) logf(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("%6.1fs %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// startCluster starts the cluster of pods, and gives torpor its rights.
func (w *podsEnv) startCluster(t *testing.T) {
	t.Helper()
	local := filepath.Join(w.programs, "local")
	w.mustRun(t, "", local, "pods", "down", "--dir", w.dir) // What something killed has left on the machine goes first.
	t.Cleanup(func() { w.mustRun(t, "", local, "pods", "down", "--dir", w.dir) })
	w.mustRun(t, "", local, "pods", "up", "--dir", w.dir, "--parts", os.Getenv("TORPOR_NODE"), "--mysql", os.Getenv("TORPOR_MYSQL"))
	config := filepath.Join("..", "..", "..", "config")
	w.kubectl(t, "apply", "-f", filepath.Join(config, "manager", "namespace.yaml"))
	w.kubectl(t, "apply", "-k", filepath.Join(config, "rbac"))
	w.kubectl(t, "apply", "--server-side", "-k", filepath.Join(config, "crd"))
	w.logf(t, "a node with real pods stands")
}

// startManager starts the manager.
func (w *podsEnv) startManager(t *testing.T, flags ...string) {
	t.Helper()
	w.metrics = testenv.FreeAddress(t)
	testenv.StartProcess(t, filepath.Join(w.tools, "torpor"), append([]string{
		"manager", "--kubeconfig", w.kubeconfigOf(t, "torpor-manager"), "--image", "localhost/torpor:dev",
		"--metrics-address", w.metrics, "--probe-address", "0",
	}, flags...), nil)
}

// kubeconfigOf lets in as a service account that torpor has in a cluster.
func (w *podsEnv) kubeconfigOf(t *testing.T, account string) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(w.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	token := w.kubectl(t, "create", "token", account, "--namespace=torpor-system")
	for name := range cfg.AuthInfos {
		cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// readMetric returns the lines of the manager's metrics that begin with the prefix.
func (w *podsEnv) readMetric(t *testing.T, prefix string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.metrics+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var found strings.Builder
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, prefix) {
			found.WriteString(line)
		}
	}
	return strings.TrimSpace(found.String())
}

// eventually waits longer than the testkit does: a rollout takes its time.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(commandTimeout)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never came true within %s: %s: %v", commandTimeout, what, err)
		}
	}
}

// stays looks again and again for a while, and expects no error.
func stays(t *testing.T, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(stayTime); time.Now().Before(end); <-tick.C {
		if err := f(); err != nil {
			t.Fatalf("did not stay true: %s: %v", what, err)
		}
	}
}
