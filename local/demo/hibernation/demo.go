// SPDX-License-Identifier: Apache-2.0

// Package hibernation runs a hub, a cloud, a cluster and torpor as real programs: for the demo, in which every line that
// is printed was observed, and for the benchmarks.
package hibernation

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

const (
	clusterName  = "mycluster"
	accessKey    = "AKIALOCAL"
	region       = "local-1"
	readyLimit   = 2 * time.Minute
	powerLimit   = 3 * time.Minute
	commandLimit = 30 * time.Second
	attemptLimit = 10 * time.Second
)

// Config is what the demo and the benchmarks are started with.
type Config struct {
	runner.Config

	// CRDs is the folder of the custom resource definitions.
	CRDs string
	// Latency is how long the cloud takes to start or stop a machine.
	Latency time.Duration
	// Certificates is how long the nodes' certificates are valid.
	Certificates time.Duration
}

func (c Config) hubKubeconfig() string { return c.FilePath("hub", "admin.kubeconfig") }

func (c Config) clusterDir() string { return c.FilePath(clusterName) }

func (c Config) targetKubeconfig() string {
	return filepath.Join(c.clusterDir(), "control-plane", "admin.kubeconfig")
}

// clusterDemo is one run of the demo or of the benchmarks.
type clusterDemo struct {
	*runner.Runner

	config   Config
	memory   *memoryWatch
	cloudURL string
	probes   string
	metrics  string
}

func newClusterDemo(ctx context.Context, c Config) (*clusterDemo, error) {
	r, err := runner.NewRunner(ctx, &c.Config)
	if err != nil {
		return nil, err
	}
	r.Kubeconfig = c.hubKubeconfig()
	return &clusterDemo{Runner: r, config: c, memory: watchMemory(ctx)}, r.EmptyDir()
}

// RunDemo shows the hibernation of a cluster and stops everything again. It returns nil only if all of it was observed.
func RunDemo(ctx context.Context, c Config) error {
	d, err := newClusterDemo(ctx, c)
	if err != nil {
		return err
	}
	return d.RunDemo(runner.Demo{
		Steps:    append(d.environmentSteps(), d.hibernate, d.outliveCertificates, d.resume),
		Duration: "90 seconds",
		LastStep: "Stop everything",
		VerifyCleanUp: func() error {
			if err := verifyNoProcesses(); err != nil {
				return err
			}
			d.PrintObserved("every process that was started has ended")
			return nil
		},
		Summary: func() string {
			return fmt.Sprintf("; at most %d MiB of memory were in use at once", d.memory.peakMiB())
		},
	})
}

// KeepEnvironment builds the environment of the demo, calls ready, and keeps it until ctx ends.
func KeepEnvironment(ctx context.Context, c Config, ready func()) error {
	d, err := newClusterDemo(ctx, c)
	if err != nil {
		return err
	}
	if err = runner.RunSteps(d.environmentSteps()...); err == nil {
		ready()
		<-ctx.Done()
	}
	return errors.Join(err, d.CleanUp())
}
