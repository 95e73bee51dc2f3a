// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/local/controlplane"
	"github.com/torpor-dev/torpor/local/machine"
)

// Up runs the cluster until ctx ends, and then leaves nothing on the machine but the files in the folder. The file
// ready is there as long as pods can be made.
func Up(ctx context.Context, c Config) error {
	c, err := c.complete()
	if err != nil {
		return err
	}
	disconnect, err := machine.Connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.run(ctx), disconnect())
}

func (c Config) run(ctx context.Context) error {
	if err := c.clear(); err != nil {
		return err
	}
	began := time.Now()
	images, err := c.images()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	control := start(ctx, func(ctx context.Context, ready func()) error {
		return controlplane.Run(ctx, c.controlPlane(), func(string) { ready() })
	})
	err = control.await(ctx)
	var node *part
	if err == nil {
		c.say("control plane serves after %s", since(began))
		node = start(ctx, func(ctx context.Context, ready func()) error { return machine.Run(ctx, c.node(images), c.Out, ready) })
		err = node.await(ctx)
	}
	if err == nil {
		c.say("node %s is Ready after %s", NodeName, since(began))
		err = c.serve(ctx, control, node)
		_ = os.Remove(c.path(ReadyFile))
	}
	// The node goes first: its parts would only complain of a control plane that has gone.
	return errors.Join(err, node.stop(), control.stop())
}

func (c Config) node(images []string) machine.Config {
	return machine.Config{
		Name: NodeName, Dir: c.path("node"), ControlPlane: c.controlPlane().Dir, Parts: c.Parts, Programs: c.Programs, Images: images,
	}
}

// serve makes volumes until the cluster is to end.
func (c Config) serve(ctx context.Context, control, node *part) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.controlPlane().AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("read admin kubeconfig: %w", err)
	}
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	v := volumes{client: client, dir: c.path("volumes")}
	if err := v.class(ctx); err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(c.controlPlane().AdminKubeconfig())
	if err == nil {
		err = errors.Join(os.WriteFile(c.Kubeconfig(), kubeconfig, 0o600), os.WriteFile(c.path(ReadyFile), nil, 0o600))
	}
	if err != nil {
		return fmt.Errorf("tell that the cluster is ready: %w", err)
	}
	c.say("ready: %s", c.Kubeconfig())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go v.run(ctx, c.Out)
	select {
	case <-ctx.Done():
		return nil
	case <-control.done:
		return control.err
	case <-node.done:
		return node.err
	}
}

func (c Config) say(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

func since(began time.Time) string { return fmt.Sprintf("%.1fs", time.Since(began).Seconds()) }

// part runs on a context of its own, so that parts stop in order.
type part struct {
	ready, done chan struct{}
	cancel      context.CancelFunc
	// err is what the part ended with, once done is closed.
	err error
}

var errEarly = errors.New("expected it to run until it is told to stop")

func start(ctx context.Context, run func(context.Context, func()) error) *part {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &part{ready: make(chan struct{}), done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(p.done)
		p.err = run(own, func() { close(p.ready) })
	}()
	return p
}

// await returns when the part is ready, or has ended before.
func (p *part) await(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.done:
		return errors.Join(p.err, errEarly)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop ends the part; one that was never started has nothing to tell.
func (p *part) stop() error {
	if p == nil {
		return nil
	}
	p.cancel()
	<-p.done
	return p.err
}
