// SPDX-License-Identifier: Apache-2.0

//go:build linux

package realnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// nodeLink is the node's end of the cable.
	nodeLink     = "eth0"
	plugLimit    = 20 * time.Second
	commandLimit = 2 * time.Minute
	socket       = "/run/containerd.sock"
)

// privateFolders are the folders that the node has for itself, empty at each boot.
func privateFolders() []string { return []string{"/run", "/var/lib", "/var/log"} }

// BootNode is the first process of the node, in its new namespaces. It returns when a part of the node has ended.
// Each step is a line to out.
func BootNode(ctx context.Context, settings string, out io.Writer) error {
	var c Config
	if err := json.Unmarshal([]byte(settings), &c); err != nil {
		return fmt.Errorf("decode node settings: %w", err)
	}
	if err := errors.Join(c.mountFolders(), shadowKernelSettings()); err != nil {
		return err
	}
	if err := setUpNetwork(ctx); err != nil {
		return err
	}
	init := newInit(c.partsEnvironment())
	if err := c.startContainerd(ctx, init, out); err != nil {
		return err
	}
	for name, argv := range map[string][]string{
		"kubelet": {
			c.programPath("kubelet"), "--config=" + c.path("kubelet.yaml"), "--kubeconfig=" + c.path("kubeconfig"),
			"--hostname-override=" + c.Name, "--node-ip=" + Address,
		},
		"kube-proxy": {c.programPath("kube-proxy"), "--config=" + c.path("proxy.yaml")},
		"coredns":    {c.programPath("coredns"), "-conf", c.path("Corefile")},
	} {
		if err := init.startPart(name, c.path(name+".log"), argv...); err != nil {
			return err
		}
	}
	return init.awaitFirstEnd(ctx)
}

func (c Config) startContainerd(ctx context.Context, init *initProcess, out io.Writer) error {
	began := time.Now()
	if err := init.startPart("containerd", c.path("containerd.log"), "containerd", "-c", c.path("containerd.toml")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		return init.runCommand(ctx, "version", c.path("ctr.log"), "ctr", "-a", socket, "version") == nil, init.endedPart()
	})
	if err != nil {
		return fmt.Errorf("wait for containerd: %w", err)
	}
	fmt.Fprintf(out, "containerd runs after %.1fs; importing %d images\n", time.Since(began).Seconds(), len(c.Images))
	for _, file := range c.Images {
		began := time.Now()
		if err := init.runCommand(ctx, "import", c.path("ctr.log"), "ctr", "-a", socket, "-n", "k8s.io", "images", "import", file); err != nil {
			return fmt.Errorf("import %s: %w", file, err)
		}
		fmt.Fprintf(out, "imported %s in %.1fs\n", filepath.Base(file), time.Since(began).Seconds())
	}
	return nil
}

// mountFolders hides the folders in which the node's parts write beside their own, so that none of it reaches the machine.
func (c Config) mountFolders() error {
	errs := []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""), // The kubelet wants shared mounts; the namespace keeps them from the machine.
		unix.Mount("proc", "/proc", "proc", 0, ""),
	}
	for _, folder := range privateFolders() {
		errs = append(errs, unix.Mount("tmpfs", folder, "tmpfs", 0, "mode=0755"))
	}
	for own, place := range map[string]string{"kubelet": "/var/lib/kubelet", "podlogs": "/var/log/pods"} {
		errs = append(errs, os.MkdirAll(c.path(own), 0o755), os.MkdirAll(place, 0o755), unix.Mount(c.path(own), place, "", unix.MS_BIND|unix.MS_REC, ""))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("mount the node's folders: %w", err)
	}
	return nil
}

// shadowKernelSettings puts files over the kernel settings that a kubelet wants and that would hold for the whole machine:
// it reads what it wants and changes nothing.
func shadowKernelSettings() error {
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		file := filepath.Join("/run/settings", name)
		err := errors.Join(
			os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, []byte(value+"\n"), 0o644),
			unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""),
		)
		if err != nil {
			return fmt.Errorf("keep the kernel setting %s: %w", name, err)
		}
	}
	return nil
}

// setUpNetwork waits for the cable and sets up the node's own network namespace.
func setUpNetwork(ctx context.Context) error {
	var eth0 netlink.Link
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, plugLimit, true, func(context.Context) (bool, error) {
		var err error
		eth0, err = netlink.LinkByName(nodeLink)
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for link %s: %w", nodeLink, err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find link lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("start link lo: %w", err)
	}
	if err := setAddress(eth0, Address); err != nil {
		return err
	}
	if err := addRoute(eth0, "0.0.0.0/0", HostAddress); err != nil {
		return err
	}
	// Packets from pod to pod of a Service go through the rules as well, or the answers would come from elsewhere.
	for _, name := range []string{"net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables"} {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte("1\n"), 0o644); err != nil {
			return fmt.Errorf("set the kernel setting %s: %w", name, err)
		}
	}
	return nil
}
