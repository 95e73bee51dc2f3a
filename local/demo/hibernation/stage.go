// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/process"
	"github.com/torpor-dev/torpor/local/demo/output"
	"github.com/torpor-dev/torpor/local/targetcluster"
)

// run is what stands on the stage, and the telling of it.
type run struct {
	Config
	ctx      context.Context
	starter  *process.Starter
	children []*child
	memory   *memory
	story    *output.Story
	cloudURL string
	probes   string
	metrics  string
}

func newRun(ctx context.Context, c Config) (*run, error) {
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, fmt.Errorf("resolve folder: %w", err)
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		return nil, fmt.Errorf("empty demo folder: %w", err)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make demo folder: %w", err)
	}
	for _, program := range []string{c.Local, c.Torpor, c.Kubectl} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("find program: %w; run make demo, which builds it", err)
		}
	}
	return &run{Config: c, ctx: ctx, starter: process.NewStarter(), memory: watchMemory(ctx), story: &output.Story{Out: c.Out, Colour: c.Colour}}, nil
}

func (r *run) stage() []func() error {
	return []func() error{r.startHubAndCloud, r.createCluster, r.startDormantManager, r.installCRD}
}

// play does the parts one after the other, up to the first that fails.
func play(parts ...func() error) error {
	for _, part := range parts {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) startHubAndCloud() error {
	r.step("A hub (a real Kubernetes control plane) and a cloud")
	hub, err := r.start("hub", r.Local, "control-plane", "--dir", r.path("hub"))
	if err != nil {
		return err
	}
	cloud, err := r.start("cloud", r.Local, "cloud", "--dir", r.path("cloud"), "--allow-commands", "--access-keys", accessKey,
		"--start-latency", r.Latency.String(), "--stop-latency", r.Latency.String())
	if err != nil {
		return err
	}
	if r.cloudURL, err = r.awaitLine(cloud, "ready:"); err != nil {
		return err
	}
	r.saw("the cloud speaks the EC2 API at %s; machines take %s to start and to stop", r.cloudURL, r.Latency)
	if _, err := r.awaitLine(hub, "ready "); err != nil {
		return err
	}
	answer, err := r.kubectl("get", "--raw", "/version")
	if err != nil {
		return err
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal([]byte(answer), &version); err != nil {
		return fmt.Errorf("decode version: %w", err)
	}
	r.saw("the hub serves Kubernetes %s", version.GitVersion)
	return nil
}

func (r *run) createCluster() error {
	r.step("Cluster " + clusterName + ": a control-plane machine and two nodes at that cloud")
	result, err := targetcluster.Create(r.ctx, targetcluster.Config{
		Name: clusterName, Namespace: "default", Dir: r.clusterDir(), HubKubeconfig: r.hubKubeconfig(),
		Cloud: r.cloudURL, Region: region, AccessKey: accessKey, Nodes: 2, Certificates: r.Certificates,
		Heartbeat: 3 * time.Second, Program: r.Local, Version: "4.16.3", Progress: r.saw,
	})
	if err != nil {
		return fmt.Errorf("create cluster: %w", err)
	}
	if result.Applied {
		return errors.New("expected a hub without ClusterDeployments, found it serves them already")
	}
	r.saw("its Secrets are in the hub; the hub does not know the kind ClusterDeployment yet")
	return nil
}
