// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package realnode runs a real node: containerd, the kubelet, kube-proxy and CoreDNS, in process, mount and network
// namespaces of their own. When the first process in them ends, however it ends, the kernel ends everything else:
// containers, mounts, bridges and rules. So the machine around it is left as it was.
package realnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The networks of the one node that a machine can run. The host's end of the cable is the bridge.
const (
	Bridge        = "torpor0"
	HostAddress   = "10.250.0.1"
	Address       = "10.250.0.11"
	networkBits   = "/24"
	podNetwork    = "10.244.1.0/24"
	serviceRange  = "10.96.0.0/16"
	clusterDomain = "cluster.local"
)

// Config is what a real node is started with.
type Config struct {
	// Name of the Node object.
	Name string
	// Dir keeps containers, volumes, logs and certificates; an existing one is continued, as a disk is after a boot.
	Dir string
	// ControlPlane is the folder of a control plane that serves on HostAddress.
	ControlPlane string
	// Parts is the folder that FetchParts has filled.
	Parts string
	// Programs is the folder with kubelet, kube-proxy, coredns and pause.
	Programs string
	// Images are the files to import before the first pod starts.
	Images []string
}

var errRoot = errors.New("expected root, found another user: a real node makes namespaces and mounts; run it as root")

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
		errs = append(errs, fmt.Errorf("expected containerd and its companions in %s, found them not; run make node-parts", c.Parts))
	}
	for _, program := range []string{"kubelet", "kube-proxy", "coredns", "pause"} {
		if _, err := os.Stat(filepath.Join(c.Programs, program)); err != nil {
			errs = append(errs, fmt.Errorf("find program: %w; run make node-parts, which builds it", err))
		}
	}
	for _, folder := range privateFolders() {
		if strings.HasPrefix(c.Dir+"/", folder+"/") {
			errs = append(errs, fmt.Errorf("expected a folder outside %s, which the node has for itself, found %s; set --dir", folder, c.Dir))
		}
	}
	return errors.Join(errs...)
}

func (c Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

func (c Config) programPath(name string) string { return filepath.Join(c.Programs, name) }

func (c Config) adminKubeconfig() string { return filepath.Join(c.ControlPlane, "admin.kubeconfig") }

// partPath finds a folder of the fetched packages in both places where Debian 12 has it.
func (c Config) partPath(name string) string {
	return filepath.Join(c.Parts, "usr", name) + ":" + filepath.Join(c.Parts, name)
}

// partsEnvironment lets programs of the fetched packages find each other and their libraries.
func (c Config) partsEnvironment() []string {
	return []string{
		"PATH=" + strings.Join([]string{filepath.Join(c.Parts, "names"), c.partPath("sbin"), c.partPath("bin"), os.Getenv("PATH")}, ":"),
		"LD_LIBRARY_PATH=" + c.partPath(libraryFolder()),
		"XTABLES_LIBDIR=" + filepath.Join(c.Parts, "usr", libraryFolder(), "xtables"),
		"HOME=" + c.Dir,
	}
}
