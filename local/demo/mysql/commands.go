// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mysql

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

func (d *mysqlDemo) run(program, stdin string, args ...string) (string, error) {
	return d.RunCommand(runner.CommandLine{Program: program, Args: args, Stdin: stdin, Limit: commandLimit})
}

func (d *mysqlDemo) kubectl(args ...string) (string, error) {
	return d.run(d.config.Kubectl, "", append([]string{"--namespace", namespace}, args...)...)
}

// kubectlMoco is kubectl moco, whose flags follow its name.
func (d *mysqlDemo) kubectlMoco(args ...string) (string, error) {
	program := filepath.Join(filepath.Dir(d.config.Torpor), "kubectl-moco")
	return d.run(program, "", append([]string{"--namespace", namespace}, args...)...)
}

// showMoco runs kubectl moco and prints the command and its output.
func (d *mysqlDemo) showMoco(args ...string) error {
	out, err := d.kubectlMoco(args...)
	if err != nil {
		return err
	}
	d.PrintObserved("kubectl moco %s", formatCommandLine(args))
	d.QuoteOutput(out)
	return nil
}

// formatCommandLine is a command line as a person types it.
func formatCommandLine(args []string) string {
	typed := make([]string, len(args))
	for i, arg := range args {
		typed[i] = arg
		if strings.ContainsAny(arg, " '") {
			typed[i] = strconv.Quote(arg)
		}
	}
	return strings.Join(typed, " ")
}

// showCluster prints what kubectl shows of the cluster.
func (d *mysqlDemo) showCluster() error {
	out, err := d.kubectl("get", "mysqlcluster", clusterName)
	if err != nil {
		return err
	}
	d.PrintObserved("kubectl get mysqlcluster")
	d.QuoteOutput(out)
	return nil
}

// runSQL runs statements in an instance, by its ordinal.
func (d *mysqlDemo) runSQL(index int, statements ...string) (string, error) {
	return d.kubectlMoco("mysql", "-u", "moco-admin", "--index", strconv.Itoa(index), clusterName, "--", "-Nr", "-e", strings.Join(statements, "; "))
}

// conditionStatus is the status of a condition of the cluster.
func (d *mysqlDemo) conditionStatus(kind string) (string, error) {
	return d.kubectl("get", "mysqlcluster", clusterName, "-o", `jsonpath={.status.conditions[?(@.type=="`+kind+`")].status}`)
}

// findPrimary is the ordinal of the primary.
func (d *mysqlDemo) findPrimary() (int, error) {
	out, err := d.kubectl("get", "mysqlcluster", clusterName, "-o", "jsonpath={.status.currentPrimaryIndex}")
	if err != nil {
		return 0, err
	}
	// A cluster that has just been made has no primary yet.
	if out == "" {
		return 0, errors.New("expected a primary in the status, found none")
	}
	index, err := strconv.Atoi(out)
	if err != nil {
		return 0, fmt.Errorf("read primary: %w", err)
	}
	return index, nil
}

// awaitHealthy waits until clustering reports every instance as healthy.
func (d *mysqlDemo) awaitHealthy() error {
	return d.Poll("the cluster to be healthy", commandLimit, func(context.Context) error {
		status, err := d.conditionStatus("Healthy")
		if err == nil && status != "True" {
			err = fmt.Errorf("expected Healthy to be True, found %q", status)
		}
		return err
	})
}

// observeFor repeats f for a while, up to its first error.
func (d *mysqlDemo) observeFor(f func() error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(observationTime); time.Now().Before(end); {
		if err := f(); err != nil {
			return err
		}
		select {
		case <-d.Context.Done():
			return context.Cause(d.Context)
		case <-tick.C:
		}
	}
	return nil
}
