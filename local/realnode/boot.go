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
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
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

// initProcess starts the node's parts and reaps every process whose parent has gone, as the first process of a
// machine has to. So it waits for all processes in one place, and os/exec cannot be used to wait.
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

// setPath lets this process find the programs that it starts where they find each other.
func (i *initProcess) setPath() {
	for _, variable := range i.environment {
		if len(variable) > 5 && variable[:5] == "PATH=" {
			_ = os.Setenv("PATH", variable[5:]) // It only fails for a name that is none.
		}
	}
}

func (i *initProcess) startPart(name, log string, argv ...string) error {
	return i.forkProcess(log, argv, func(status syscall.WaitStatus) {
		select {
		case i.endedParts <- fmt.Errorf("%s ended by itself: %w; its log is %s", name, describeStatus(status), log):
		default: // The first that ends is the one to report.
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
	// The lock is held until the process is known here: it may end, and be reaped, at once.
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

// reapChildren waits for children, own and inherited, as long as there are any.
func (i *initProcess) reapChildren() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		i.mu.Lock()
		if err != nil && len(i.onEnd) == 0 {
			// There are no children any more; the next fork starts to reap again.
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

// endedPart is the error of a part that has ended; nil if all run.
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
