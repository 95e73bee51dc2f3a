// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package mysql shows on a real MySQL cluster what a stop of clustering and of reconciliation means: with real pods
// on this machine, or in a Kubernetes cluster of the user. Every line that is printed was observed.
package mysql

import (
	"context"
	_ "embed" // The manifest is a file, as a user's is.
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

//go:embed cluster.yaml
var manifest string

// probes is where the manager of the demo answers that it is ready.
const probes = "127.77.250.1:8081"

// startPodCluster starts a cluster with real pods on this machine, and torpor beside it.
func (d *mysqlDemo) startPodCluster() error {
	d.BeginStep("A cluster with real pods on this machine: containerd, the kubelet, Services, DNS, volumes")
	if os.Geteuid() != 0 {
		return errors.New("expected to be root on Debian, since real pods need namespaces and mounts; " +
			"or use a cluster of yours with Torpor in it: make demo NAME=mysql DEMO=--kubeconfig=FILE")
	}
	d.OnCleanUp(func() error {
		_, err := d.run(d.config.Local, "", "pods", "down", "--dir", d.config.Dir)
		if err == nil {
			d.PrintObserved("every process that was started has ended, and nothing is left on the machine")
		}
		return err
	})
	if _, err := d.run(d.config.Local, "", "pods", "up", "--dir", d.config.Dir, "--parts", d.config.Parts, "--mysql", d.config.MySQL); err != nil {
		return err
	}
	nodes, err := d.kubectl("get", "nodes")
	if err != nil {
		return err
	}
	d.PrintObserved("kubectl get nodes")
	d.QuoteOutput(nodes)
	for _, args := range [][]string{
		{"create", "namespace", namespace},
		{"apply", "--server-side", "-k", filepath.Join(d.config.ConfigDir, "crd")},
	} {
		if _, err := d.kubectl(args...); err != nil {
			return err
		}
	}
	d.PrintObserved("kubectl apply --server-side -k config/crd")
	return d.startManager()
}

// startManager runs torpor on this machine; from here the pods can be reached by their addresses.
func (d *mysqlDemo) startManager() error {
	manager, err := d.StartProgram("manager", d.config.Torpor, "manager", "--kubeconfig", d.Kubeconfig,
		"--metrics-address", "0", "--probe-address", probes)
	if err != nil {
		return err
	}
	if err := d.AwaitReady(manager, probes); err != nil {
		return err
	}
	d.PrintObserved("torpor manager is ready")
	return nil
}

// useGivenCluster uses a cluster in which Torpor runs already: its pods may not be in reach from here.
func (d *mysqlDemo) useGivenCluster() error {
	d.BeginStep("The cluster of " + d.Kubeconfig)
	out, err := d.kubectl("get", "pods", "--all-namespaces", "-l", "app.kubernetes.io/name=torpor", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return err
	}
	if out == "" {
		return errors.New("expected Torpor to run there, found none: install it as the README says, with config/crd")
	}
	if _, err := d.kubectl("create", "namespace", namespace); err != nil {
		return err
	}
	d.OnCleanUp(func() error {
		_, err := d.kubectl("delete", "namespace", namespace)
		return err
	})
	d.PrintObserved("Torpor runs there: %s", out)
	return nil
}

func (d *mysqlDemo) createMySQLCluster() error {
	d.BeginStep("A MySQLCluster of three instances")
	text := strings.ReplaceAll(manifest, "IMAGE", d.config.Image)
	if _, err := d.run(d.config.Kubectl, text, "--namespace", namespace, "apply", "-f", "-"); err != nil {
		return err
	}
	d.PrintObserved("kubectl apply -f local/demo/mysql/cluster.yaml")
	d.OnCleanUp(d.deleteMySQLCluster)
	if err := d.awaitHealthy(); err != nil {
		return err
	}
	d.PrintObserved("it is healthy")
	pods, err := d.kubectl("get", "pods")
	if err != nil {
		return err
	}
	d.PrintObserved("kubectl get pods")
	d.QuoteOutput(pods)
	return d.showCluster()
}

func (d *mysqlDemo) deleteMySQLCluster() error {
	if _, err := d.kubectl("delete", "mysqlcluster", clusterName, "--timeout="+commandLimit.String()); err != nil {
		return err
	}
	err := d.Poll("the pods and volumes to go", commandLimit, func(context.Context) error {
		left, err := d.kubectl("get", "pods,pvc,services,statefulsets", "-o", "name")
		if err == nil && left != "" {
			err = fmt.Errorf("expected nothing in namespace %s, found %s", namespace, left)
		}
		return err
	})
	if err == nil {
		d.PrintObserved("kubectl delete mysqlcluster %s: its pods, volumes and Services are gone", clusterName)
	}
	return err
}
