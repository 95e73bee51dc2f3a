// SPDX-License-Identifier: Apache-2.0

//go:build linux

package podcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/torpor-dev/torpor/local/component"
	"github.com/torpor-dev/torpor/local/controlplane"
	"github.com/torpor-dev/torpor/local/kubeclient"
	"github.com/torpor-dev/torpor/local/realnode"
)

// stopLimit is above what the components of a control plane take together.
const stopLimit = 3 * time.Minute

// RunCluster runs the cluster until ctx ends, and then leaves nothing on the machine but the files in the folder. The file
// ready is there as long as pods can be made.
func RunCluster(ctx context.Context, c Config) error {
	c, err := c.withAbsolutePaths()
	if err != nil {
		return err
	}
	disconnect, err := realnode.ConnectBridge(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.runParts(ctx), disconnect())
}

func (c Config) runParts(ctx context.Context) error {
	if err := c.clearFolder(); err != nil {
		return err
	}
	began := time.Now()
	images, err := c.makeImages()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	control := component.Start(ctx, "control plane", func(ctx context.Context, ready func()) error {
		return controlplane.Run(ctx, c.controlPlaneConfig(), func(string) { ready() })
	})
	err = control.AwaitReady(ctx)
	var node *component.Component
	if err == nil {
		c.printLine("control plane serves after %s", secondsSince(began))
		node = component.Start(ctx, "node", func(ctx context.Context, ready func()) error {
			return realnode.RunNode(ctx, c.nodeConfig(images), c.Out, ready)
		})
		err = node.AwaitReady(ctx)
	}
	if err == nil {
		c.printLine("node %s is Ready after %s", NodeName, secondsSince(began))
		err = c.serveVolumes(ctx, control, node)
		_ = os.Remove(c.path(ReadyFile))
	}
	// The node goes first: its parts would only complain of a control plane that has gone.
	return errors.Join(err, node.Stop(stopLimit), control.Stop(stopLimit))
}

func (c Config) nodeConfig(images []string) realnode.Config {
	return realnode.Config{
		Name: NodeName, Dir: c.path("node"), ControlPlane: c.controlPlaneConfig().Dir, Parts: c.Parts, Programs: c.Programs, Images: images,
	}
}

// serveVolumes makes volumes until the cluster is to end.
func (c Config) serveVolumes(ctx context.Context, components ...*component.Component) error {
	client, err := kubeclient.NewClient(c.controlPlaneConfig().AdminKubeconfig())
	if err != nil {
		return err
	}
	v := volumeProvisioner{client: client, dir: c.path("volumes")}
	if err := v.createStorageClass(ctx); err != nil {
		return err
	}
	// Only now: a user that sees the ready file may make pods with volumes at once.
	kubeconfig, err := os.ReadFile(c.controlPlaneConfig().AdminKubeconfig())
	if err == nil {
		err = errors.Join(os.WriteFile(c.KubeconfigPath(), kubeconfig, 0o600), os.WriteFile(c.path(ReadyFile), nil, 0o600))
	}
	if err != nil {
		return fmt.Errorf("tell that the cluster is ready: %w", err)
	}
	c.printLine("ready: %s", c.KubeconfigPath())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go v.runPasses(ctx, c.Out)
	return component.AwaitFirstExit(ctx, components...)
}

func (c Config) printLine(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

func secondsSince(began time.Time) string { return fmt.Sprintf("%.1fs", time.Since(began).Seconds()) }
