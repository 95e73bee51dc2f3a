// SPDX-License-Identifier: Apache-2.0

//go:build linux

package podcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/local/controlplane"
	"github.com/torpor-dev/torpor/local/realnode"
)

// Up runs the cluster until ctx ends, and then leaves nothing on the machine but the files in the folder. The file
// ready is there as long as pods can be made.
func Up(ctx context.Context, c Config) error {
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
	control := startPart(ctx, func(ctx context.Context, ready func()) error {
		return controlplane.Run(ctx, c.controlPlaneConfig(), func(string) { ready() })
	})
	err = control.awaitReady(ctx)
	var node *clusterPart
	if err == nil {
		c.printLine("control plane serves after %s", secondsSince(began))
		node = startPart(ctx, func(ctx context.Context, ready func()) error {
			return realnode.Run(ctx, c.nodeConfig(images), c.Out, ready)
		})
		err = node.awaitReady(ctx)
	}
	if err == nil {
		c.printLine("node %s is Ready after %s", NodeName, secondsSince(began))
		err = c.serveVolumes(ctx, control, node)
		_ = os.Remove(c.path(ReadyFile))
	}
	// The node goes first: its parts would only complain of a control plane that has gone.
	return errors.Join(err, node.stop(), control.stop())
}

func (c Config) nodeConfig(images []string) realnode.Config {
	return realnode.Config{
		Name: NodeName, Dir: c.path("node"), ControlPlane: c.controlPlaneConfig().Dir, Parts: c.Parts, Programs: c.Programs, Images: images,
	}
}

// serveVolumes makes volumes until the cluster is to end.
func (c Config) serveVolumes(ctx context.Context, control, node *clusterPart) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.controlPlaneConfig().AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("read admin kubeconfig: %w", err)
	}
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	v := volumeProvisioner{client: client, dir: c.path("volumes")}
	if err := v.createStorageClass(ctx); err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(c.controlPlaneConfig().AdminKubeconfig())
	if err == nil {
		err = errors.Join(os.WriteFile(c.Kubeconfig(), kubeconfig, 0o600), os.WriteFile(c.path(ReadyFile), nil, 0o600))
	}
	if err != nil {
		return fmt.Errorf("tell that the cluster is ready: %w", err)
	}
	c.printLine("ready: %s", c.Kubeconfig())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go v.runPasses(ctx, c.Out)
	select {
	case <-ctx.Done():
		return nil
	case <-control.done:
		return control.err
	case <-node.done:
		return node.err
	}
}

func (c Config) printLine(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

func secondsSince(began time.Time) string { return fmt.Sprintf("%.1fs", time.Since(began).Seconds()) }

// clusterPart runs on a context of its own, so that parts stop in order.
type clusterPart struct {
	ready, done chan struct{}
	cancel      context.CancelFunc
	// err is what the part ended with, once done is closed.
	err error
}

var errEndedEarly = errors.New("expected it to run until it is told to stop")

func startPart(ctx context.Context, run func(context.Context, func()) error) *clusterPart {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &clusterPart{ready: make(chan struct{}), done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(p.done)
		p.err = run(own, func() { close(p.ready) })
	}()
	return p
}

// awaitReady returns when the part is ready, or has ended before.
func (p *clusterPart) awaitReady(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.done:
		return errors.Join(p.err, errEndedEarly)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop ends the part; one that was never started has nothing to tell.
func (p *clusterPart) stop() error {
	if p == nil {
		return nil
	}
	p.cancel()
	<-p.done
	return p.err
}
