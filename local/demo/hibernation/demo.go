// SPDX-License-Identifier: Apache-2.0

// Package hibernation runs a hub, a cloud, a cluster and torpor as real programs: for the demo, in which every line that
// is printed was observed, and for the benchmarks.
package hibernation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/torpor-dev/torpor/local/demo/runner"
	"github.com/torpor-dev/torpor/local/targetcluster"
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
	return &clusterDemo{Runner: r, config: c, memory: watchMemory(ctx)}, nil
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
		VerifyCleanUp: func() {
			runner.ExpectNoError(verifyNoProcesses())
			d.PrintObserved("every process that was started has ended")
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

func (d *clusterDemo) environmentSteps() []func() {
	return []func(){d.EmptyDir, d.startHubAndCloud, d.createCluster, d.startDormantManager, d.installCRD}
}

func (d *clusterDemo) startHubAndCloud() {
	d.BeginStep("A hub (a real Kubernetes control plane) and a cloud")
	hub := d.StartProgram("hub", d.config.Local, "control-plane", "--dir", d.config.FilePath("hub"))
	latency := d.config.Latency.String()
	cloud := d.StartProgram("cloud", d.config.Local, "cloud", "--dir", d.config.FilePath("cloud"), "--allow-commands",
		"--access-keys", accessKey, "--start-latency", latency, "--stop-latency", latency)
	d.cloudURL = d.AwaitLogLine(cloud, "ready:")
	d.PrintObserved("the cloud speaks the EC2 API at %s; machines take %s to start and to stop", d.cloudURL, latency)
	d.AwaitLogLine(hub, "ready ")
	answer := d.kubectl("get", "--raw", "/version")
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	runner.ExpectNoError(json.Unmarshal([]byte(answer), &version))
	d.PrintObserved("the hub serves Kubernetes %s", version.GitVersion)
}

func (d *clusterDemo) clusterConfig(name string) targetcluster.Config {
	return targetcluster.Config{
		Name: name, Namespace: "default", Dir: d.config.FilePath(name), HubKubeconfig: d.config.hubKubeconfig(),
		Cloud: d.cloudURL, Region: region, AccessKey: accessKey, Program: d.config.Local, Version: "4.16.3",
	}
}

func (d *clusterDemo) createCluster() {
	d.BeginStep("Cluster " + clusterName + ": a control-plane machine and two nodes at that cloud")
	c := d.clusterConfig(clusterName)
	c.Nodes, c.Certificates, c.Heartbeat, c.Progress = 2, d.config.Certificates, 3*time.Second, d.PrintObserved
	result, err := targetcluster.CreateCluster(d.Context, c)
	runner.ExpectNoError(err)
	if result.Applied {
		runner.FailStep("expected a hub without ClusterDeployments, found it serves them already")
	}
	d.PrintObserved("its Secrets are in the hub; the hub does not know the kind ClusterDeployment yet")
}

// startDormantManager starts torpor while none of its kinds exists, and verifies that it stays up.
func (d *clusterDemo) startDormantManager() {
	d.BeginStep("torpor manager, started before any CRD exists")
	addresses := runner.FindFreeAddresses(d.Context, 2)
	d.metrics, d.probes = addresses[0], addresses[1]
	manager := d.StartProgram("manager", d.config.Torpor, "manager", "--kubeconfig", d.config.hubKubeconfig(),
		"--metrics-address", d.metrics, "--probe-address", d.probes)
	crds := d.kubectl("get", "crd", "-o", "name")
	if crds != "" {
		runner.FailStep("expected a hub without CRDs, found %q", crds)
	}
	d.AwaitReady(manager, d.probes)
	d.PrintObserved("the manager is ready, with no CRD in the hub")
	d.verifyControllerRuns(false)
	d.PrintObserved("its hibernation controller is dormant")
}

func (d *clusterDemo) installCRD() {
	d.BeginStep("Install the CRD: the controller starts")
	d.kubectl("apply", "--server-side", "-k", d.config.CRDs)
	d.Poll("the controller", readyLimit, func(context.Context) { d.verifyControllerRuns(true) })
	d.PrintObserved("the hibernation controller runs")
	d.kubectl("apply", "-f", filepath.Join(d.config.clusterDir(), "clusterdeployment.yaml"))
	d.awaitPowerState("Running")
	d.showClusters()
}
