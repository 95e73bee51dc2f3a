// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package mysql shows on a real MySQL cluster what a stop of clustering and of reconciliation means: with real pods
// on this machine, or in a Kubernetes cluster of the user. Every line that is printed was observed.
package mysql

import (
	"context"
	"time"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

const (
	// clusterName is the name of the MySQLCluster.
	clusterName = "test"
	namespace   = "torpor-demo"
	// commandLimit is above what any command takes, a wait included.
	commandLimit = 5 * time.Minute
	// observationTime is how long it is observed that nothing interferes.
	observationTime = 5 * time.Second
)

// Config is what the demo is started with.
type Config struct {
	runner.Config

	// Kubeconfig of a cluster in which Torpor runs; empty means a cluster with real pods on this machine.
	Kubeconfig string
	// Image of the MySQL server.
	Image string
	// Parts and MySQL are the folders that make node-parts and make mysql have filled; ConfigDir is the tree's config.
	Parts, MySQL, ConfigDir string
}

// mysqlDemo is one run of the demo.
type mysqlDemo struct {
	*runner.Runner

	config Config
}

// RunDemo shows all of it and removes everything again. It returns nil only if all of it was observed.
func RunDemo(ctx context.Context, c Config) error {
	r, err := runner.NewRunner(ctx, &c.Config, &c.Parts, &c.MySQL, &c.ConfigDir)
	if err != nil {
		return err
	}
	d := &mysqlDemo{Runner: r, config: c}
	makeCluster := d.startPodCluster
	r.Kubeconfig = c.FilePath("admin.kubeconfig")
	if c.Kubeconfig != "" {
		r.Kubeconfig, makeCluster = c.Kubeconfig, d.useGivenCluster
	}
	return d.RunDemo(runner.Demo{
		Steps: []func() error{
			makeCluster, d.createMySQLCluster, d.writeRow, d.stopClustering, d.advanceReplicas, d.startClustering, d.stopReconciliation,
			d.killPrimary,
		},
		Duration: "two minutes",
		LastStep: "Remove everything",
	})
}
