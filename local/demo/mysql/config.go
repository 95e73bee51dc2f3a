// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package mysql shows on a real MySQL cluster what a stop of clustering and of reconciliation means: with real pods
// on this machine, or in somebody's Kubernetes. Every line that is printed was observed.
package mysql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/local/demo/output"
)

const (
	// clusterName is the name of the MySQLCluster.
	clusterName = "test"
	// commandLimit is above what any command takes, a wait included.
	commandLimit = 5 * time.Minute
	// quiet is how long it is watched that nobody interferes.
	quiet = 5 * time.Second
)

// Config says where the story is played and with which programs.
type Config struct {
	// Dir keeps the cluster with real pods and the logs.
	Dir string
	// Kubeconfig of a cluster in which Torpor runs; empty means a cluster with real pods on this machine.
	Kubeconfig string
	// Image of the MySQL server.
	Image string
	// Local and Torpor are the programs; kubectl is beside Local and kubectl-moco beside Torpor.
	Local, Torpor string
	// Parts and MySQL are the folders that make node-parts and make mysql have filled; ConfigDir is the tree's config.
	Parts, MySQL, ConfigDir string
	// Out gets the story; Colour allows escape sequences in it.
	Out    io.Writer
	Colour bool
}

// play is a story that is being told.
type play struct {
	Config
	ctx       context.Context
	story     *output.Story
	namespace string
	began     time.Time
	// undo ends what was begun, the last first.
	undo []func() error
}

var errInterrupted = errors.New("interrupted; expected to be let through to the end, which takes about two minutes")

// Run tells the story and removes everything again. It returns nil only if all of it was observed.
func Run(ctx context.Context, c Config) error {
	for _, path := range []*string{&c.Dir, &c.Local, &c.Torpor, &c.Parts, &c.MySQL, &c.ConfigDir} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("resolve folder: %w", err)
		}
		*path = absolute
	}
	p := &play{Config: c, ctx: ctx, story: &output.Story{Out: c.Out, Colour: c.Colour}, namespace: "torpor-demo", began: time.Now()}
	err := p.acts()
	switch {
	case ctx.Err() != nil:
		err = errInterrupted
	case err != nil:
		err = fmt.Errorf("step %d: %w", p.story.Steps(), err)
	}
	p.story.Step("Remove everything")
	if err := errors.Join(err, p.end()); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "\nAll of it was observed, in %.0f seconds.\n", time.Since(p.began).Seconds())
	return nil
}

func (p *play) acts() error {
	stage := p.ownPods
	if p.Kubeconfig != "" {
		stage = p.somebodys
	}
	for _, act := range []func() error{stage, p.create, p.write, p.stopClustering, p.advance, p.startClustering, p.reconciliation, p.failover} {
		if err := act(); err != nil {
			return err
		}
	}
	return nil
}

func (p *play) end() error {
	// Who interrupts wants everything gone as well.
	p.ctx = context.WithoutCancel(p.ctx)
	var errs []error
	for _, undo := range slices.Backward(p.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}
