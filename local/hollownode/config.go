// SPDX-License-Identifier: Apache-2.0

// Package hollownode runs a hollow node: no containers, but the kubelet's own bootstrap and certificate managers,
// a real lease, real heartbeats, and pods that are reported as running.
package hollownode

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Config is what a hollow node is started with.
type Config struct {
	// Name of the Node object.
	Name string
	// Address is the loopback address that the node claims as its InternalIP and serves on.
	Address string
	// Dir keeps the node's certificates and its kubeconfig, as a kubelet's root folder does.
	Dir string
	// Bootstrap is the kubeconfig with the token that asks for the first client certificate.
	Bootstrap string
	// Heartbeat is the interval of the lease's renewal and of the node status.
	Heartbeat time.Duration
	// Hold delays the node's start after its machine is on, as a slow boot does.
	Hold time.Duration
	// HoldFile holds the node's start for as long as a file of this path exists; empty holds nothing.
	HoldFile string
}

// kubeletPort is where a kubelet serves.
const kubeletPort = 10250

func (c Config) validate() error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("expected a node name, found none; set --name"))
	}
	if ip := net.ParseIP(c.Address); ip == nil || !ip.IsLoopback() {
		errs = append(errs, fmt.Errorf("expected a loopback address, found %q; set --address to one of 127.0.0.0/8", c.Address))
	}
	if c.Heartbeat <= 0 {
		errs = append(errs, fmt.Errorf("expected a heartbeat above zero, found %s; set --heartbeat", c.Heartbeat))
	}
	if _, err := os.Stat(c.Bootstrap); err != nil {
		errs = append(errs, fmt.Errorf("read bootstrap kubeconfig: %w; set --bootstrap-kubeconfig", err))
	}
	return errors.Join(errs...)
}

func (c Config) kubeconfigPath() string  { return filepath.Join(c.Dir, "kubeconfig") }
func (c Config) certificatesDir() string { return filepath.Join(c.Dir, "pki") }

func (c Config) nodeAddresses() []corev1.NodeAddress {
	return []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: c.Name},
		{Type: corev1.NodeInternalIP, Address: c.Address},
	}
}
