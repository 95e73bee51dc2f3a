// SPDX-License-Identifier: Apache-2.0

//go:build linux

package realnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// nodeLink is the node's end of the virtual Ethernet cable.
	nodeLink     = "eth0"
	plugLimit    = 20 * time.Second
	commandLimit = 2 * time.Minute
	socket       = "/run/containerd.sock"
)

// privateFolders returns the folders that are private to the node and empty at each boot.
func privateFolders() []string { return []string{"/run", "/var/lib", "/var/log"} }

// BootNode is the first process of the node, in its new namespaces. It returns when one of the node's programs has
// ended. It writes a line per step to out.
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

// mountFolders mounts private folders over the folders to which the node's programs write, so that the programs do not
// change files of the machine.
func (c Config) mountFolders() error {
	errs := []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		// The kubelet needs shared mounts; because of the namespace, they do not affect the machine.
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""),
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

// shadowKernelSettings mounts files over the kernel settings that a kubelet sets and that would apply to the whole
// machine. The files contain the values that the kubelet requires, so the kubelet changes nothing.
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
			return fmt.Errorf("mount a file over the kernel setting %s: %w", name, err)
		}
	}
	return nil
}

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
	// With these settings, the rules of kube-proxy also apply to packets between pods. Otherwise responses of a Service
	// would come from another address.
	for _, name := range []string{"net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables"} {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte("1\n"), 0o644); err != nil {
			return fmt.Errorf("set the kernel setting %s: %w", name, err)
		}
	}
	return nil
}

// initProcess starts the node's programs and reaps all orphaned processes, as the first process of a machine must.
// Therefore it waits for all processes in one place, and cannot use os/exec.
type initProcess struct {
	environment []string
	endedParts  chan error

	mu      sync.Mutex
	onEnd   map[int]func(syscall.WaitStatus)
	reaping bool
}

func newInit(environment []string) *initProcess {
	i := &initProcess{environment: environment, endedParts: make(chan error, 1), onEnd: map[int]func(syscall.WaitStatus){}}
	i.setPath()
	return i
}

// setPath sets the PATH of this process to the PATH of the node's programs.
func (i *initProcess) setPath() {
	for _, variable := range i.environment {
		if len(variable) > 5 && variable[:5] == "PATH=" {
			_ = os.Setenv("PATH", variable[5:]) // Setenv only fails for an invalid name.
		}
	}
}

func (i *initProcess) startPart(name, log string, argv ...string) error {
	return i.forkProcess(log, argv, func(status syscall.WaitStatus) {
		select {
		case i.endedParts <- fmt.Errorf("%s ended unexpectedly: %w; its log is %s", name, describeStatus(status), log):
		default: // Only the first program that ends is reported.
		}
	})
}

func (i *initProcess) runCommand(ctx context.Context, name, log string, argv ...string) error {
	done := make(chan syscall.WaitStatus, 1)
	if err := i.forkProcess(log, argv, func(status syscall.WaitStatus) { done <- status }); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", name, ctx.Err())
	case status := <-done:
		if status.Exited() && status.ExitStatus() == 0 {
			return nil
		}
		return fmt.Errorf("%s: %w; its log is %s", name, describeStatus(status), log)
	}
}

func (i *initProcess) forkProcess(log string, argv []string, ended func(syscall.WaitStatus)) error {
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("find program: %w", err)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = out.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("open input: %w", err)
	}
	defer func() { _ = null.Close() }()
	i.mu.Lock()
	defer i.mu.Unlock()
	// Keep the lock until the process is registered: it may end, and be reaped, immediately.
	pid, err := syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Env: append(os.Environ(), i.environment...), Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	i.onEnd[pid] = ended
	if !i.reaping {
		i.reaping = true
		go i.reapChildren()
	}
	return nil
}

// reapChildren waits for all children, including inherited ones, until none are left.
func (i *initProcess) reapChildren() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		i.mu.Lock()
		if err != nil && len(i.onEnd) == 0 {
			// No children are left; the next fork starts reaping again.
			i.reaping = false
			i.mu.Unlock()
			return
		}
		ended := i.onEnd[pid]
		delete(i.onEnd, pid)
		i.mu.Unlock()
		if ended != nil {
			ended(status)
		}
	}
}

// endedPart returns the error of a program that has ended, or nil if all programs run.
func (i *initProcess) endedPart() error {
	select {
	case err := <-i.endedParts:
		return err
	default:
		return nil
	}
}

func (i *initProcess) awaitFirstEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-i.endedParts:
		return err
	}
}

func describeStatus(s syscall.WaitStatus) error {
	if s.Signaled() {
		return fmt.Errorf("signal %s", s.Signal())
	}
	return fmt.Errorf("exit code %d", s.ExitStatus())
}

const (
	hostLink     = "torpor1"
	releaseLimit = 10 * time.Second
)

var (
	errNetworkTaken = errors.New("expected no other network 10.250.0.0/24, 10.244.1.0/24 or 10.96.0.0/16 on this machine, found one: a real node needs these networks")
	errNodeExists   = errors.New("expected no real node on this machine, found one; stop it first, a machine can run only one")
)

// reserveName reserves a name for this process with an abstract Unix socket. The kernel releases the socket when the
// process ends.
func reserveName(ctx context.Context, name string) (func(), error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", "@torpor-"+name)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", errNodeExists, err)
	}
	return func() { _ = l.Close() }, nil
}

// awaitReservation reserves a name, and waits if a killed process still holds it. A process holds a name until its last
// thread has ended.
func awaitReservation(ctx context.Context, name string) (release func(), err error) {
	_ = wait.PollUntilContextTimeout(ctx, pollInterval, releaseLimit, true, func(ctx context.Context) (bool, error) {
		release, err = reserveName(ctx, name)
		return err == nil, nil
	})
	return release, err
}

// ConnectBridge creates the bridge with the host's address, on which a control plane serves the node and its pods.
// The returned function removes the bridge and the routes to the node.
func ConnectBridge(ctx context.Context) (func() error, error) {
	release, err := awaitReservation(ctx, "bridge")
	if err != nil {
		return nil, err
	}
	end := func() error {
		defer release()
		return removeLinks()
	}
	if err := makeBridge(); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// RemoveLeftovers removes the links and cgroups of a killed process that the kernel has not removed. It returns an
// error while a node or its bridge is in use.
func RemoveLeftovers(ctx context.Context) error {
	for _, name := range []string{"bridge", "node"} {
		release, err := awaitReservation(ctx, name)
		if err != nil {
			return err
		}
		defer release()
	}
	return errors.Join(removeLinks(), removeCgroups(ctx, cgroupPrefix+"*"))
}

func makeBridge() error {
	if os.Geteuid() != 0 {
		return errRoot
	}
	if err := removeLinks(); err != nil { // A killed process may have left these links.
		return err
	}
	for _, network := range []string{HostAddress + networkBits, podNetwork, serviceRange} {
		if hasRouteInto(network) {
			return fmt.Errorf("%w: %s", errNetworkTaken, network)
		}
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Bridge}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("create bridge %s: %w", Bridge, err)
	}
	return setAddress(bridge, HostAddress)
}

func removeLinks() error {
	for _, name := range []string{hostLink, Bridge} {
		link, err := netlink.LinkByName(name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			return fmt.Errorf("remove link %s: %w", name, err)
		}
	}
	return nil
}

// hasRouteInto reports whether the machine already has a route that overlaps the network, apart from its default route.
func hasRouteInto(network string) bool {
	ip, wanted, err := net.ParseCIDR(network)
	if err != nil {
		return true
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	for _, r := range routes {
		// A default route has no mask and matches all addresses.
		if ones, _ := maskSize(r.Dst); ones > 0 && (r.Dst.Contains(ip) || wanted.Contains(r.Dst.IP)) {
			return true
		}
	}
	return err != nil
}

func maskSize(n *net.IPNet) (int, int) {
	if n == nil {
		return 0, 0
	}
	return n.Mask.Size()
}

// plugCable connects the network namespace of a process to the bridge by a virtual Ethernet cable.
func plugCable(pid int) error {
	bridge, err := netlink.LinkByName(Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", Bridge, err)
	}
	if old, err := netlink.LinkByName(hostLink); err == nil {
		_ = netlink.LinkDel(old) // If the link remains, the next line fails.
	}
	attrs := netlink.LinkAttrs{Name: hostLink, MasterIndex: bridge.Attrs().Index}
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: nodeLink, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("connect the node to bridge %s: %w", Bridge, err)
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("bring up the link %s: %w", hostLink, err)
	}
	for _, network := range []string{podNetwork, serviceRange} {
		if err := addRoute(bridge, network, Address); err != nil {
			return err
		}
	}
	return nil
}

func setAddress(link netlink.Link, ip string) error {
	addr, err := netlink.ParseAddr(ip + networkBits)
	if err != nil {
		return fmt.Errorf("address of %s: %w", link.Attrs().Name, err)
	}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("give %s the address %s: %w", link.Attrs().Name, ip, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up the link %s: %w", link.Attrs().Name, err)
	}
	return nil
}

func addRoute(link netlink.Link, network, via string) error {
	_, destination, err := net.ParseCIDR(network)
	if err != nil {
		return fmt.Errorf("route: %w", err)
	}
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: destination, Gw: net.ParseIP(via)}
	if err := netlink.RouteReplace(r); err != nil {
		return fmt.Errorf("route %s by %s: %w", network, via, err)
	}
	return nil
}

const (
	cgroups      = "/sys/fs/cgroup"
	cgroupsLimit = 20 * time.Second
	cgroupPrefix = "torpor-"
)

func (c Config) cgroupRoot() string { return "/" + cgroupPrefix + c.Name }

func hasCgroupsV1() bool {
	_, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
	return err != nil
}

// findCgroupHierarchies returns the hierarchies in which a container needs a cgroup.
func findCgroupHierarchies() ([]string, error) {
	if !hasCgroupsV1() {
		return []string{cgroups}, nil
	}
	var found []string
	for _, controller := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd", "hugetlb", "net_cls", "net_prio", "perf_event"} {
		if _, err := os.Stat(filepath.Join(cgroups, controller)); err == nil {
			found = append(found, filepath.Join(cgroups, controller))
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("expected cgroups below %s, found none: a node cannot run without them", cgroups)
	}
	return found, nil
}

// makeCgroups removes the cgroups that a killed run of the node left, and creates new ones.
func (c Config) makeCgroups(ctx context.Context) error {
	if err := removeCgroups(ctx, c.cgroupRoot()); err != nil {
		return err
	}
	all, err := findCgroupHierarchies()
	if err != nil {
		return err
	}
	for _, hierarchy := range all {
		group := filepath.Join(hierarchy, c.cgroupRoot())
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
		if filepath.Base(hierarchy) != "cpuset" {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // The files are empty at first, and no process can run with an empty set.
			data, err := os.ReadFile(filepath.Join(hierarchy, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(group, file), data, 0o644)
			}
			if err != nil {
				return fmt.Errorf("fill cgroup: %w", err)
			}
		}
	}
	return nil
}

// removeCgroups removes the node's cgroups once the kernel has reaped their processes. These include cgroups that the
// node's programs have created.
func removeCgroups(ctx context.Context, name string) error {
	var roots []string
	for _, pattern := range []string{filepath.Join(cgroups, name), filepath.Join(cgroups, "*", name)} {
		// In version 1, each hierarchy contains the cgroup. Version 2 has only one hierarchy.
		found, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("list cgroups: %w", err)
		}
		roots = append(roots, found...)
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, cgroupsLimit, true, func(context.Context) (bool, error) {
		last = nil
		for _, root := range roots {
			last = errors.Join(last, removeCgroupTree(root))
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("remove the node's cgroups: %w: %w", err, last)
	}
	return nil
}

func removeCgroupTree(root string) error {
	var groups []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			groups = append(groups, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, group := range slices.Backward(groups) {
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
