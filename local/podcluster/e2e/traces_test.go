// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// machineTraces are what a node could leave on a machine, by kind.
type machineTraces map[string][]string

// readTraces reads the machine. Other programs live on it too, so processes count when they mention the test's folders.
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

// expectSame compares with what was there before. What the kernel buries, it buries in its own time.
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

// nodeNamespaces are the network namespaces in which programs of a node run.
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

// filterRules are the packet filter's rules of the machine, as the fetched tool sees them.
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
