// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// commandTimeout is much longer than any command takes.
	commandTimeout = 4 * time.Minute
	// stayTime is how long the test checks that a change does not happen.
	stayTime = 5 * time.Second
	// bridgeAddress is the address of the machine on the bridge to the node.
	bridgeAddress = "10.250.0.1"
)

// podsEnv is a cluster with real Pods, and torpor outside it with exactly the permissions of an installation.
type podsEnv struct {
	dir, programs, tools string
	metrics              string
	began                time.Time
}

// newPodsEnv starts a cluster, or skips the test where real Pods cannot run.
func newPodsEnv(t *testing.T) *podsEnv {
	t.Helper()
	if os.Getenv("TORPOR_E2E") != "pods" {
		t.Skip("TORPOR_E2E is not pods: these tests take minutes and use the machine's only node; run make e2e-pods")
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: a real node creates namespaces and mounts")
	}
	local, torpor := os.Getenv("TORPOR_LOCAL"), testenv.TorporPath(t)
	for what, file := range map[string]string{
		"TORPOR_LOCAL": local, "TORPOR_S3": os.Getenv("TORPOR_S3"),
		"TORPOR_NODE":  filepath.Join(os.Getenv("TORPOR_NODE"), "names/iptables"),
		"TORPOR_MYSQL": filepath.Join(os.Getenv("TORPOR_MYSQL"), "usr/sbin/mysqld"),
	} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("no real pods: %s contains no %q: run make e2e-pods as root on Debian", what, file)
		}
	}
	return &podsEnv{
		dir: filepath.Join(t.TempDir(), "pods"), programs: filepath.Dir(local), tools: filepath.Dir(torpor), began: time.Now(),
	}
}

func (e *podsEnv) kubeconfig() string { return filepath.Join(e.dir, "admin.kubeconfig") }

func (e *podsEnv) tryRun(t *testing.T, stdin, program string, args ...string) (string, error) {
	t.Helper()
	// Cleanups run programs, too, after the test's context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.kubeconfig(), "PATH="+e.tools+":"+e.programs+":"+os.Getenv("PATH"))
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(program), strings.Join(args, " "), err, out, problems.String())
	}
	return strings.TrimSpace(string(out)), err
}

func (e *podsEnv) mustRun(t *testing.T, stdin, program string, args ...string) string {
	t.Helper()
	out, err := e.tryRun(t, stdin, program, args...)
	testenv.ExpectNoError(t, err)
	return out
}

func (e *podsEnv) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return e.mustRun(t, "", filepath.Join(e.programs, "kubectl"), args...)
}

// apply replaces words in a manifest of testdata, and applies the manifest. The parameter words alternates words and
// replacements.
func (e *podsEnv) apply(t *testing.T, file string, words ...string) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("testdata", file))
	testenv.ExpectNoError(t, err)
	e.mustRun(t, strings.NewReplacer(words...).Replace(string(manifest)), filepath.Join(e.programs, "kubectl"), "apply", "-f", "-")
}

// logf logs a line with the time since the beginning of the test.
func (e *podsEnv) logf(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("%6.1fs %s", time.Since(e.began).Seconds(), fmt.Sprintf(format, args...))
}

func (e *podsEnv) startCluster(t *testing.T) {
	t.Helper()
	local := filepath.Join(e.programs, "local")
	e.mustRun(t, "", local, "pods", "down", "--dir", e.dir) // A killed test leaves namespaces and mounts on the machine.
	t.Cleanup(func() { e.mustRun(t, "", local, "pods", "down", "--dir", e.dir) })
	e.mustRun(t, "", local, "pods", "up", "--dir", e.dir, "--parts", os.Getenv("TORPOR_NODE"), "--mysql", os.Getenv("TORPOR_MYSQL"))
	config := filepath.Join("..", "..", "..", "config")
	e.kubectl(t, "apply", "-f", filepath.Join(config, "manager", "namespace.yaml"))
	e.kubectl(t, "apply", "-k", filepath.Join(config, "rbac"))
	for _, pattern := range []string{"role_*.yaml", "bindings.yaml"} {
		files, err := filepath.Glob(filepath.Join(config, "features", "*", pattern))
		if err != nil {
			t.Fatal(err)
		}
		e.kubectl(t, "apply", "-f", strings.Join(files, ","))
	}
	e.kubectl(t, "apply", "--server-side", "-k", filepath.Join(config, "crd"))
	e.logf(t, "a node with real pods is ready")
}

func (e *podsEnv) startManager(t *testing.T, flags ...string) {
	t.Helper()
	e.metrics = testenv.FreeAddress(t)
	testenv.StartProcess(t, filepath.Join(e.tools, "torpor"), append([]string{
		"manager", "--kubeconfig", e.kubeconfigOf(t, "torpor-manager"), "--image", "localhost/torpor:dev",
		"--metrics-address", e.metrics, "--metrics-insecure", "--probe-address", "0",
	}, flags...), nil)
}

func (e *podsEnv) kubeconfigOf(t *testing.T, account string) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(e.kubeconfig())
	testenv.ExpectNoError(t, err)
	token := e.kubectl(t, "create", "token", account, "--namespace=torpor-system")
	for name := range cfg.AuthInfos {
		cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	testenv.ExpectNoError(t, clientcmd.WriteToFile(*cfg, file))
	return file
}

func (e *podsEnv) readMetric(t *testing.T, prefix string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.metrics+"/metrics", http.NoBody)
	testenv.ExpectNoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	testenv.ExpectNoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	testenv.ExpectNoError(t, err)
	var found strings.Builder
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, prefix) {
			found.WriteString(line)
		}
	}
	return strings.TrimSpace(found.String())
}

// eventually polls with the time limit of a command, because a rollout is slow.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	testenv.EventuallyWithin(t, commandTimeout, what, f)
}

type testStep[E any] struct {
	name string
	run  func(E, *testing.T)
}

// runSteps runs the steps until one fails, because later steps would only repeat the failure.
func runSteps[E any](t *testing.T, env E, steps []testStep[E]) {
	t.Helper()
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) { step.run(env, t) }) {
			t.FailNow()
		}
	}
}

type podProcess struct {
	pid  int
	name string
}

// findPodProcesses finds the processes of Pods by the UIDs in the names of their cgroups.
func findPodProcesses(t *testing.T, uids ...string) []podProcess {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	testenv.ExpectNoError(t, err)
	var found []podProcess
	for _, folder := range folders {
		groups, _ := os.ReadFile(filepath.Join(folder, "cgroup")) // Processes may end during the search.
		name, _ := os.ReadFile(filepath.Join(folder, "comm"))
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err == nil && slices.ContainsFunc(uids, func(uid string) bool { return strings.Contains(string(groups), uid) }) {
			found = append(found, podProcess{pid, strings.TrimSpace(string(name))})
		}
	}
	return found
}

type clusterView struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Conditions   []metav1.Condition `json:"conditions"`
		Primary      int                `json:"currentPrimaryIndex"`
		RestoredTime *metav1.Time       `json:"restoredTime"`
		Backup       struct {
			Time *metav1.Time `json:"time"`
		} `json:"backup"`
		BinlogShipping struct {
			RestorableSince string `json:"restorableSince"`
			ShippedUntil    string `json:"shippedUntil"`
		} `json:"binlogShipping"`
	} `json:"status"`
}

func (e *podsEnv) readCluster(t *testing.T, cluster string) clusterView {
	t.Helper()
	var s clusterView
	testenv.ExpectNoError(t, json.Unmarshal([]byte(e.kubectl(t, "get", "mysqlcluster", cluster, "-o", "json")), &s))
	return s
}

func (s clusterView) expectCondition(kind string, want metav1.ConditionStatus, parts ...string) error {
	for _, c := range s.Status.Conditions {
		if c.Type != kind {
			continue
		}
		found := fmt.Sprintf("%s: %s", c.Reason, c.Message)
		if c.Status == want && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(found, part) }) {
			return nil
		}
		return fmt.Errorf("condition %s: expected %s with %q, found %s with %q", kind, want, parts, c.Status, found)
	}
	return fmt.Errorf("expected a condition %s, found none", kind)
}

func (e *podsEnv) waitUntilHealthy(t *testing.T, cluster string) clusterView {
	t.Helper()
	var s clusterView
	eventually(t, cluster+" is healthy", func() error {
		s = e.readCluster(t, cluster)
		return errors.Join(s.expectCondition("Healthy", metav1.ConditionTrue), s.expectCondition("StatefulSetReady", metav1.ConditionTrue))
	})
	return s
}

// expectColumns compares the columns that kubectl prints for the cluster test, ignoring blanks.
func (e *podsEnv) expectColumns(t *testing.T, want string) {
	t.Helper()
	const head = "NAME AVAILABLE HEALTHY PRIMARY SYNCED REPLICAS ERRANT REPLICAS CLUSTERING ACTIVE RECONCILE ACTIVE LAST BACKUP"
	out := e.kubectl(t, "get", "mysqlcluster", "test")
	got := strings.Join(strings.Fields(out), " ")
	if got != head+" "+want {
		t.Errorf("columns: expected %q, found:\n%s", want, out)
	}
	t.Logf("kubectl get mysqlcluster test\n%s", out)
}

type podView struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Conditions []metav1.Condition `json:"conditions"`
		Containers []struct {
			Restarts int `json:"restartCount"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

// restarts returns the total number of restarts of all containers.
func (p podView) restarts() int {
	sum := 0
	for _, c := range p.Status.Containers {
		sum += c.Restarts
	}
	return sum
}

func (p podView) role() string { return p.Metadata.Labels["moco.cybozu.com/role"] }

func (p podView) ready() bool {
	return p.Metadata.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == "Ready" && c.Status == metav1.ConditionTrue
	})
}

func (e *podsEnv) listPods(t *testing.T) map[string]podView {
	t.Helper()
	var list struct {
		Items []podView `json:"items"`
	}
	out := e.kubectl(t, "get", "pods", "-l", "app.kubernetes.io/created-by=moco,app.kubernetes.io/instance=test", "-o", "json")
	testenv.ExpectNoError(t, json.Unmarshal([]byte(out), &list))
	byName := map[string]podView{}
	for _, p := range list.Items {
		byName[p.Metadata.Name] = p
	}
	return byName
}

func podName(index int) string { return fmt.Sprintf("moco-test-%d", index) }

// signalServer sends a signal to the server in a Pod, which is also a process on this machine.
func signalServer(t *testing.T, p podView, signal syscall.Signal) {
	t.Helper()
	servers := slices.DeleteFunc(findPodProcesses(t, string(p.Metadata.UID)), func(p podProcess) bool { return p.name != "mysqld" })
	if len(servers) != 1 {
		t.Fatalf("servers in %s: expected one, found %d", p.Metadata.Name, len(servers))
	}
	testenv.ExpectNoError(t, syscall.Kill(servers[0].pid, signal))
}
