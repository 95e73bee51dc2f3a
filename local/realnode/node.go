// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package realnode runs a real node: containerd, the kubelet, kube-proxy and CoreDNS, in separate process, mount and
// network namespaces. When the first process in these namespaces ends for any reason, the kernel removes everything
// else in them: containers, mounts, bridges and rules. The machine therefore stays unchanged.
package realnode

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/local/debian"
	"github.com/torpor-dev/torpor/local/images"
	"github.com/torpor-dev/torpor/local/kubeclient"
	"github.com/torpor-dev/torpor/local/pki"
)

// These are the networks of the only node that a machine can run. The host's end of the virtual Ethernet cable is
// connected to the bridge.
const (
	Bridge        = "torpor0"
	HostAddress   = "10.250.0.1"
	Address       = "10.250.0.11"
	networkBits   = "/24"
	podNetwork    = "10.244.1.0/24"
	serviceRange  = "10.96.0.0/16"
	clusterDomain = "cluster.local"
)

// Config is the configuration of a real node.
type Config struct {
	// Name of the Node object.
	Name string
	// Dir contains containers, volumes, logs and kubeconfigs. An existing folder is reused, as a disk is after a
	// reboot.
	Dir string
	// ControlPlane is the folder of a control plane that serves on HostAddress.
	ControlPlane string
	// Parts is the folder filled by FetchParts.
	Parts string
	// Programs is the folder with kubelet, kube-proxy, coredns and pause.
	Programs string
	// Images are the files to import before the first pod starts.
	Images []string
}

var errRoot = errors.New("expected root, found another user: a real node creates namespaces and mounts; run it as root")

func (c Config) validate() error {
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(errs, errRoot)
	}
	if c.Name == "" {
		errs = append(errs, errors.New("expected a node name, found none; set --name"))
	}
	if _, err := os.Stat(filepath.Join(c.ControlPlane, "pki", "ca.key")); err != nil {
		errs = append(errs, fmt.Errorf("find the control plane's certificates: %w; set --control-plane to its folder", err))
	}
	if !IsFetched(c.Parts) {
		errs = append(errs, fmt.Errorf("expected containerd and the programs it needs in %s, found an incomplete set; run make node-parts", c.Parts))
	}
	for _, program := range []string{"kubelet", "kube-proxy", "coredns", "pause"} {
		if _, err := os.Stat(filepath.Join(c.Programs, program)); err != nil {
			errs = append(errs, fmt.Errorf("find program: %w; run make node-parts, which builds it", err))
		}
	}
	for _, folder := range privateFolders() {
		if strings.HasPrefix(c.Dir+"/", folder+"/") {
			errs = append(errs, fmt.Errorf("expected a folder outside %s, which is private to the node, found %s; set --dir", folder, c.Dir))
		}
	}
	return errors.Join(errs...)
}

func (c Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

func (c Config) programPath(name string) string { return filepath.Join(c.Programs, name) }

func (c Config) adminKubeconfig() string { return filepath.Join(c.ControlPlane, "admin.kubeconfig") }

// partPath returns the two paths at which the fetched packages may contain a folder, separated by a colon. Debian 12
// uses both.
func (c Config) partPath(name string) string {
	return filepath.Join(c.Parts, "usr", name) + ":" + filepath.Join(c.Parts, name)
}

// partsEnvironment returns the variables with the paths at which the programs of the fetched packages find each
// other and their libraries.
func (c Config) partsEnvironment() []string {
	return []string{
		"PATH=" + strings.Join([]string{filepath.Join(c.Parts, "names"), c.partPath("sbin"), c.partPath("bin"), os.Getenv("PATH")}, ":"),
		"LD_LIBRARY_PATH=" + c.partPath(libraryFolder()),
		"XTABLES_LIBDIR=" + filepath.Join(c.Parts, "usr", libraryFolder(), "xtables"),
		"HOME=" + c.Dir,
	}
}

const (
	readyTimeout = 2 * time.Minute
	pollInterval = 50 * time.Millisecond
	// BootCommand is the command with which the program starts itself as the first process of the node.
	BootCommand = "boot-node"
)

// RunNode runs the node on the bridge of ConnectBridge until ctx ends. It calls ready once the node is Ready. It
// reports progress to out.
func RunNode(ctx context.Context, c Config, out io.Writer, ready func()) error {
	if err := c.validate(); err != nil {
		return err
	}
	release, err := awaitReservation(ctx, "node")
	if err != nil {
		return err
	}
	defer release()
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("create node folder: %w", err)
	}
	if err := c.writeSettings(); err != nil {
		return err
	}
	if err := c.makeCgroups(ctx); err != nil {
		return err
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ended <- c.runInNamespaces(ctx, out) }()
	go func() {
		if c.awaitReady(ctx) == nil {
			ready()
		}
	}()
	err = <-ended
	return errors.Join(err, removeCgroups(context.WithoutCancel(ctx), c.cgroupRoot()))
}

// runInNamespaces starts the first process of the node and returns when this process and everything in its
// namespaces have ended.
func (c Config) runInNamespaces(ctx context.Context, out io.Writer) error {
	// The kernel ends the node when the thread that started it ends, so this thread must live as long as the
	// process.
	runtime.LockOSThread()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	settings, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode node settings: %w", err)
	}
	log, err := os.Create(c.path("node.log"))
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, program, BootCommand, string(settings))
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	steps, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("read the node's output: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("create the node's namespaces: %w", err)
	}
	if err := plugCable(cmd.Process.Pid); err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	for lines := bufio.NewScanner(steps); lines.Scan(); {
		fmt.Fprintln(out, lines.Text())
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("expected the node to run until interrupted, it ended (%w); its logs are in %s", err, c.Dir)
}

// awaitReady waits until the node is Ready with a heartbeat since this boot, because the Node object from before a
// power cut still reports Ready.
func (c Config) awaitReady(ctx context.Context) error {
	began := time.Now().Truncate(time.Second)
	client, err := kubeclient.NewClient(c.path("kubeconfig"))
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true, func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, c.Name, metav1.GetOptions{})
		return err == nil && isReady(node, began), nil
	})
	if err != nil {
		return fmt.Errorf("wait for node %s: %w", c.Name, err)
	}
	return nil
}

func isReady(node *corev1.Node, since time.Time) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(since)
	})
}

// settings contains the settings files of the node's programs, with placeholders in braces that settingsReplacer
// replaces.
//
//go:embed settings
var settings embed.FS

func (c Config) writeSettings() error {
	if err := c.issueCertificates(); err != nil {
		return err
	}
	err := fs.WalkDir(settings, "settings", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := settings.ReadFile(path)
		if err != nil {
			return err
		}
		file := c.path(strings.TrimPrefix(path, "settings/"))
		return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(c.settingsReplacer().Replace(string(text))), 0o600))
	})
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// issueCertificates creates the certificates and kubeconfigs of the kubelet and kube-proxy, as an installer of nodes
// would.
func (c Config) issueCertificates() error {
	authority, err := pki.OpenAuthority(filepath.Join(c.ControlPlane, "pki"))
	if err != nil {
		return err
	}
	admin, err := clientcmd.BuildConfigFromFlags("", c.adminKubeconfig())
	if err != nil {
		return fmt.Errorf("read the control plane's kubeconfig: %w", err)
	}
	if !strings.Contains(admin.Host, HostAddress) {
		return fmt.Errorf("expected a control plane on %s, which the node can reach, found %s: start it with --address %s", HostAddress, admin.Host, HostAddress)
	}
	for name, s := range map[string]pki.CertificateSubject{
		"node-" + c.Name: {Name: "system:node:" + c.Name, Groups: []string{"system:nodes"}, Hosts: []string{c.Name, Address}},
		"kube-proxy":     {Name: "system:kube-proxy"},
	} {
		if err := authority.IssueCertificate(name, s); err != nil {
			return err
		}
	}
	if err := authority.WriteKubeconfig(c.path("proxy.kubeconfig"), "kube-proxy", admin.Host); err != nil {
		return err
	}
	return authority.WriteKubeconfig(c.path("kubeconfig"), "node-"+c.Name, admin.Host)
}

func (c Config) settingsReplacer() *strings.Replacer {
	certificate := filepath.Join(c.ControlPlane, "pki", "node-"+c.Name)
	failOld := "true"
	if hasCgroupsV1() {
		failOld = "false"
	}
	return strings.NewReplacer(
		"{dir}", c.Dir, "{parts}", c.Parts, "{name}", c.Name, "{address}", Address, "{pods}", podNetwork, "{socket}", socket,
		"{pause}", images.Pause, "{cgroup}", c.cgroupRoot(), "{failCgroupV1}", failOld, "{domain}", clusterDomain,
		"{ca}", filepath.Join(c.ControlPlane, "pki", "ca.crt"), "{certificate}", certificate, "{admin}", c.adminKubeconfig(),
	)
}

// IsFetched reports whether the folder contains all files that FetchParts fetches.
func IsFetched(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "names", "iptables"))
	return err == nil
}

// BusyboxPath returns the path of the static busybox in the folder of FetchParts.
func BusyboxPath(dir string) string { return filepath.Join(dir, "bin", "busybox") }

// FetchParts fetches containerd and the other programs of a node from the machine's own Debian suite into dir; it
// installs nothing. It does nothing if they already exist. It reports progress to out.
func FetchParts(ctx context.Context, dir string, out io.Writer) error {
	if IsFetched(dir) {
		return nil
	}
	fmt.Fprintln(out, "fetching containerd, runc, CNI plugins, nftables and iptables from this machine's Debian suite: about 40 MB, half a minute")
	packages := []string{"containerd", "runc", "containernetworking-plugins", "nftables", "iptables", "busybox-static"}
	if err := debian.FetchPackages(ctx, debian.PackageRequest{Packages: packages}, dir); err != nil {
		return err
	}
	// Create the links that the package iptables creates when it is installed.
	names := filepath.Join(dir, "names")
	errs := []error{os.MkdirAll(names, 0o755)}
	for _, name := range []string{"ip6tables", "ip6tables-save", "ip6tables-restore", "iptables-save", "iptables-restore", "iptables"} {
		errs = append(errs, os.Symlink("../usr/sbin/xtables-nft-multi", filepath.Join(names, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("create the links to iptables: %w", err)
	}
	return nil
}

// libraryFolder is Debian's folder of shared libraries, below / or /usr.
func libraryFolder() string {
	triplets := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
	return filepath.Join("lib", triplets[runtime.GOARCH])
}
