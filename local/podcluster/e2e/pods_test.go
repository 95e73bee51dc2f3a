// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const limit = 3 * time.Minute

type podCluster struct {
	t                      *testing.T
	dir, local, parts, sql string
}

func newPodCluster(t *testing.T) podCluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: a real node creates namespaces and mounts")
	}
	local, parts, sql := os.Getenv("TORPOR_LOCAL"), os.Getenv("TORPOR_NODE"), os.Getenv("TORPOR_MYSQL")
	if _, err := os.Stat(filepath.Join(parts, "names/iptables")); err != nil || local == "" {
		t.Skip("no containerd: TORPOR_LOCAL and TORPOR_NODE are not the files of make node-parts; run make e2e-pods on a Debian machine")
	}
	if _, err := os.Stat(filepath.Join(sql, "usr/sbin/mysqld")); err != nil {
		t.Skip("no MySQL: TORPOR_MYSQL is not the folder of make mysql; run make e2e-pods on a Debian machine")
	}
	w := podCluster{t: t, dir: filepath.Join(t.TempDir(), "pods"), local: local, parts: parts, sql: sql}
	w.down() // Leftovers of a killed run must not count as the machine's own state.
	return w
}

func (w podCluster) run(stdin, program string, args ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(w.dir, "admin.kubeconfig"))
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("%s %s: %v\n%s%s", filepath.Base(program), strings.Join(args, " "), err, out, problems.String())
	}
	return strings.TrimSpace(string(out))
}

func (w podCluster) kubectl(args ...string) string {
	w.t.Helper()
	return w.run("", filepath.Join(filepath.Dir(w.local), "kubectl"), args...)
}

func (w podCluster) up() {
	w.t.Helper()
	w.run("", w.local, "pods", "up", "--dir", w.dir, "--parts", w.parts, "--mysql", w.sql)
}

func (w podCluster) down() {
	w.t.Helper()
	w.run("", w.local, "pods", "down", "--dir", w.dir)
}

func (w podCluster) query(pod, host, statement string) string {
	w.t.Helper()
	args := []string{"exec", pod, "-c", "mysqld", "--", "mysql", "-Nr"}
	if host == "" {
		return w.kubectl(append(args, "-uroot", "-S/run/mysqld/mysqld.sock", "-e", statement)...)
	}
	return w.kubectl(append(args, "-uapp", "-h", host, "-e", statement)...)
}

func (w podCluster) expectEqual(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: expected %q, found %q", what, want, got)
	}
}

// TestPods consists of steps that build on each other; together they take as long as a test is allowed to take.
func TestPods(t *testing.T) {
	w := newPodCluster(t)
	before := readTraces(w)
	w.up()
	t.Cleanup(func() { _ = exec.Command(w.local, "pods", "down", "--dir", w.dir).Run() })
	manifest, err := os.ReadFile("testdata/servers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.run(string(manifest), filepath.Join(filepath.Dir(w.local), "kubectl"), "apply", "-f", "-")
	w.kubectl("rollout", "status", "statefulset/my", "--timeout=2m")
	w.expectEqual("phases of the claims", w.kubectl("get", "pvc", "-o", "jsonpath={.items[*].status.phase}"), "Bound Bound Bound")
	w.expectEqual("user of the server", w.kubectl("exec", "my-0", "-c", "mysqld", "--", "id", "-u"), "10000")
	for _, pod := range []string{"my-0", "my-1", "my-2"} {
		w.query(pod, "", "CREATE USER app@'%'; GRANT ALL ON *.* TO app@'%'; CREATE DATABASE kept")
	}
	w.expectEqual("a pod reaches another by its name", w.query("my-1", "my-2.my.default.svc.cluster.local", "SELECT @@hostname"), "my-2")
	w.expectEqual("a pod reaches a Service", w.query("my-1", "my-all", "SELECT 1"), "1")
	w.expectGreeting(w.kubectl("get", "service", "my-all", "-o", "jsonpath={.spec.clusterIP}"))
	w.expectGreeting(w.kubectl("get", "pod", "my-2", "-o", "jsonpath={.status.podIP}"))
	w.expectRestart("my-1")
	w.expectVolumeRemoved()
	w.down()
	readTraces(w).expectSame(t, before, "after pods down")
}

// TestPowerCut simulates a power cut by a kill of the main process.
func TestPowerCut(t *testing.T) {
	w := newPodCluster(t)
	before := readTraces(w)
	w.up()
	t.Cleanup(func() { _ = exec.Command(w.local, "pods", "down", "--dir", w.dir).Run() })
	killProcess(t, strings.TrimSpace(readFile(t, w.dir+".pid")))
	w.up()
	w.expectEqual("the node of the next start", w.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"), "n1")
	killProcess(t, strings.TrimSpace(readFile(t, w.dir+".pid")))
	w.down()
	readTraces(w).expectSame(t, before, "after a power cut and pods down")
}

// expectGreeting expects a server's greeting on a connection from the machine that runs the node.
func (w podCluster) expectGreeting(ip string) {
	w.t.Helper()
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip, "3306"), limit)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	greeting := make([]byte, 64)
	if _, err := io.ReadAtLeast(conn, greeting, 12); err != nil {
		w.t.Fatal(err)
	}
	if !strings.Contains(string(greeting), "9.7.") {
		w.t.Errorf("greeting of %s: expected version 9.7, found %q", ip, greeting)
	}
}

// expectRestart kills the server in a pod, and expects the kubelet to start it again on the same data.
func (w podCluster) expectRestart(pod string) {
	w.t.Helper()
	uid := w.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	pids := findProcesses(func(pid string) bool {
		groups, _ := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
		name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		return strings.Contains(string(groups), uid) && string(name) == "mysqld\n"
	})
	if len(pids) != 1 {
		w.t.Fatalf("servers in %s: expected one process, found %v", pod, pids)
	}
	killProcess(w.t, pids[0])
	w.kubectl("wait", "pod/"+pod, "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "--timeout=2m")
	w.kubectl("wait", "pod/"+pod, "--for=condition=Ready", "--timeout=2m")
	w.expectEqual("the database after the restart", w.query(pod, "", "SHOW DATABASES LIKE 'kept'"), "kept")
}

func (w podCluster) expectVolumeRemoved() {
	w.t.Helper()
	volume := w.kubectl("get", "pvc", "mysql-data-my-2", "-o", "jsonpath={.spec.volumeName}")
	w.kubectl("scale", "statefulset/my", "--replicas=2")
	w.kubectl("wait", "pod/my-2", "--for=delete", "--timeout=2m")
	w.kubectl("delete", "pvc", "mysql-data-my-2")
	w.kubectl("wait", "pv/"+volume, "--for=delete", "--timeout=2m")
	if _, err := os.Stat(filepath.Join(w.dir, "volumes", volume)); err == nil {
		w.t.Errorf("folder of volume %s: expected none, found one", volume)
	}
}

func killProcess(t *testing.T, pid string) {
	t.Helper()
	number, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(number, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for syscall.Kill(number, 0) == nil {
		if status, err := os.ReadFile("/proc/" + pid + "/status"); err == nil && strings.Contains(string(status), "State:\tZ") {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("process %s: expected it to end, it runs", pid)
		case <-tick.C:
		}
	}
}

func findProcesses(wanted func(pid string) bool) []string {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	var found []string
	for _, folder := range folders {
		if pid := filepath.Base(folder); wanted(pid) {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	return found
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

type machineTraces map[string][]string

// readTraces reads the machine's state. Other programs run on it, too, so processes count only if their command
// lines contain the test's folders.
func readTraces(w podCluster) machineTraces {
	w.t.Helper()
	found := machineTraces{
		"mounts":   sortedLines(readFile(w.t, "/proc/mounts")),
		"routes":   sortedLines(readFile(w.t, "/proc/net/route")),
		"cgroups":  globAll("/sys/fs/cgroup/torpor-*", "/sys/fs/cgroup/*/torpor-*"),
		"folders":  globAll("/run/*", "/run/netns/*", "/var/lib/*", "/var/log/*", "/opt/*", "/etc/cni*", "/usr/libexec/*"),
		"rules":    sortedLines(filterRules(w.parts)),
		"networks": nodeNamespaces(),
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, i := range interfaces {
		found["links"] = append(found["links"], i.Name)
	}
	for _, name := range []string{
		"kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom", "net/ipv4/ip_forward",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/netfilter/nf_conntrack_max",
	} {
		if value, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
			found["settings"] = append(found["settings"], name+"="+string(value))
		}
	}
	for _, pid := range findProcesses(func(pid string) bool { return mentionsAny(pid, w.dir, w.parts) }) {
		line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		found["processes"] = append(found["processes"], pid+" "+strings.ReplaceAll(string(line), "\x00", " "))
	}
	return found
}

// expectSame expects the machine's state to be the same as before, and no process of the test to be left.
func (t machineTraces) expectSame(tb testing.TB, before machineTraces, when string) {
	tb.Helper()
	for kind, was := range before {
		if is := t[kind]; !slices.Equal(is, was) {
			tb.Errorf("%s %s: expected what was there before:\n%s\nfound:\n%s", kind, when, strings.Join(was, "\n"), strings.Join(is, "\n"))
		}
	}
	if left := t["processes"]; len(left) > 0 {
		tb.Errorf("processes %s: expected none, found %v", when, left)
	}
}

func mentionsAny(pid string, texts ...string) bool {
	line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(string(line), text) })
}

func nodeNamespaces() []string {
	var found []string
	for _, pid := range findProcesses(func(string) bool { return true }) {
		name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		if slices.Contains([]string{"containerd", "containerd-shim", "kubelet", "kube-proxy", "coredns", "pause"}, strings.TrimSpace(string(name))) {
			namespace, _ := os.Readlink(filepath.Join("/proc", pid, "ns/net"))
			found = append(found, namespace)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// filterRules returns the machine's packet filter rules, as the fetched tool prints them.
func filterRules(parts string) string {
	libraries, _ := filepath.Glob(filepath.Join(parts, "usr/lib/*-linux-gnu"))
	cmd := exec.Command(filepath.Join(parts, "usr/sbin/nft"), "list", "ruleset")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "nft: " + err.Error() + string(out)
	}
	return string(out)
}

func globAll(patterns ...string) []string {
	var found []string
	for _, pattern := range patterns {
		names, _ := filepath.Glob(pattern)
		found = append(found, names...)
	}
	return found
}

func sortedLines(text string) []string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(all)
	return all
}
