// SPDX-License-Identifier: Apache-2.0

// Package hibernation puts real parts on a stage, a hub, a cloud, a cluster and torpor, and plays on it:
// the demo, in which every line that is printed was observed, and the benchmarks.
package hibernation

import (
	"io"
	"path/filepath"
	"time"
)

// Config says where the stage finds its programs and what it may take.
type Config struct {
	// Dir keeps everything that is made; it is emptied first.
	Dir string
	// Local, Torpor and Kubectl are the programs.
	Local, Torpor, Kubectl string
	// CRDs is the folder of the custom resource definitions.
	CRDs string
	// Latency is how long the cloud takes to start or stop a machine.
	Latency time.Duration
	// Certificates is how long the nodes' certificates are valid.
	Certificates time.Duration
	// Out gets the story; Colour allows escape sequences in it.
	Out    io.Writer
	Colour bool
}

const (
	clusterName = "mycluster"
	accessKey   = "AKIALOCAL"
	region      = "local-1"
)

func (c Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

func (c Config) hubKubeconfig() string { return c.path("hub", "admin.kubeconfig") }

func (c Config) clusterDir() string { return c.path(clusterName) }

func (c Config) targetKubeconfig() string {
	return filepath.Join(c.clusterDir(), "control-plane", "admin.kubeconfig")
}
