// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mysql

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

// replicaIndexes are the replicas of the primary, the instances 1 and 2, as long as nothing happened to the first.
func replicaIndexes() []int { return []int{1, 2} }

func (d *mysqlDemo) writeRow() error {
	d.BeginStep("Write to the primary, read from the replicas")
	out, err := d.runSQL(0, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO app.t VALUES (1, 'replicated')",
		"SELECT @@version")
	if err != nil {
		return err
	}
	d.PrintObserved("kubectl moco mysql -u moco-admin %s -- -e \"… INSERT INTO app.t VALUES (1, 'replicated')\" (MySQL %s)", clusterName, out)
	for _, i := range replicaIndexes() {
		err := d.Poll("the row", commandLimit, func(context.Context) error {
			v, err := d.runSQL(i, "SELECT v FROM app.t WHERE id = 1")
			if err == nil && v != "replicated" {
				err = fmt.Errorf("expected the row in instance %d, found %q", i, v)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	d.PrintObserved("the row is in both replicas")
	return nil
}

func (d *mysqlDemo) stopClustering() error {
	d.BeginStep("A DBA stops clustering")
	if err := d.showMoco("stop", "clustering", clusterName, "--reason", "compare replicas", "--until", "40m", "--wait"); err != nil {
		return err
	}
	if err := d.showCluster(); err != nil {
		return err
	}
	return d.showMoco("status")
}

// advanceReplicas applies a transaction by hand on the replicas, which is what the stop is for.
func (d *mysqlDemo) advanceReplicas() error {
	d.BeginStep("The DBA stops the replicas' SQL threads and advances their GTIDs by hand")
	for _, i := range replicaIndexes() {
		if _, err := d.runSQL(i, "STOP REPLICA SQL_THREAD"); err != nil {
			return err
		}
	}
	d.PrintObserved("STOP REPLICA SQL_THREAD on instances 1 and 2")
	executed, err := d.runSQL(0, "INSERT INTO app.t VALUES (2, 'by hand')", "SELECT @@gtid_executed")
	if err != nil {
		return err
	}
	server, _, _ := strings.Cut(executed, ":")
	// The insert is the last transaction of the set, whose ranges end with its number.
	number := server + ":" + executed[strings.LastIndexAny(executed, ":-")+1:]
	d.PrintObserved("the primary commits %s", number)
	for _, i := range replicaIndexes() {
		if _, err := d.runSQL(i, "SET GLOBAL super_read_only = OFF", "SET GTID_NEXT = '"+number+"'", "INSERT INTO app.t VALUES (2, 'by hand')",
			"SET GTID_NEXT = 'AUTOMATIC'", "SET GLOBAL super_read_only = ON"); err != nil {
			return err
		}
	}
	d.PrintObserved("SET GTID_NEXT and the same row, on instances 1 and 2")
	err = d.observeFor(func() error {
		for _, i := range replicaIndexes() {
			got, err := d.runSQL(i, "SELECT SERVICE_STATE FROM performance_schema.replication_applier_status", "SELECT @@gtid_executed")
			if err != nil {
				return err
			}
			if want := "OFF\n" + executed; got != want {
				return fmt.Errorf("instance %d: expected its SQL thread off and the GTIDs %s, found %q", i, executed, got)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.PrintObserved("nobody has interfered: the SQL threads are stopped as they were")
	return nil
}

func (d *mysqlDemo) startClustering() error {
	d.BeginStep("The DBA hands the cluster back")
	if err := d.showMoco("start", "clustering", clusterName, "--wait"); err != nil {
		return err
	}
	if err := d.awaitHealthy(); err != nil {
		return err
	}
	if err := d.showCluster(); err != nil {
		return err
	}
	return d.verifyEqualRows()
}

func (d *mysqlDemo) verifyEqualRows() error {
	var sum string
	err := d.Poll("equal rows", commandLimit, func(context.Context) error {
		var sums []string
		for i := range len(replicaIndexes()) + 1 {
			out, err := d.runSQL(i, "CHECKSUM TABLE app.t")
			if err != nil {
				return err
			}
			sums = append(sums, out)
		}
		sum = sums[0]
		if len(slices.Compact(sums)) != 1 {
			return fmt.Errorf("expected equal checksums, found %q", sums)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.PrintObserved("CHECKSUM TABLE is the same on all instances: %s", strings.ReplaceAll(sum, "\t", " "))
	return nil
}

func (d *mysqlDemo) stopReconciliation() error {
	d.BeginStep("While reconciliation is stopped, a change of the spec waits")
	if err := d.showMoco("stop", "reconciliation", clusterName, "--wait"); err != nil {
		return err
	}
	if _, err := d.kubectl("patch", "mysqlcluster", clusterName, "--type=merge", "-p",
		`{"spec":{"primaryServiceTemplate":{"metadata":{"labels":{"team":"data"}}}}}`); err != nil {
		return err
	}
	d.PrintObserved("kubectl patch mysqlcluster %s: the Service of the primary shall have the label team=data", clusterName)
	label := func(want string) error {
		got, err := d.kubectl("get", "service", "moco-"+clusterName+"-primary", "-o", "jsonpath={.metadata.labels.team}")
		if err == nil && got != want {
			err = fmt.Errorf("expected the label team=%s, found %q", want, got)
		}
		return err
	}
	if err := d.observeFor(func() error { return label("") }); err != nil {
		return err
	}
	d.PrintObserved("the Service is as it was")
	if err := d.showCluster(); err != nil {
		return err
	}
	if err := d.showMoco("start", "reconciliation", clusterName, "--wait"); err != nil {
		return err
	}
	if err := d.Poll("the label", commandLimit, func(context.Context) error { return label("data") }); err != nil {
		return err
	}
	d.PrintObserved("the Service has the label")
	return nil
}

// killPrimary kills the primary's server and measures how long no write was possible.
func (d *mysqlDemo) killPrimary() error {
	d.BeginStep("kill -9 of the primary's server")
	old, err := d.findPrimary()
	if err != nil {
		return err
	}
	pod := fmt.Sprintf("moco-%s-%d", clusterName, old)
	if _, err := d.kubectl("exec", pod, "-c", "mysqld", "--", "sh", "-c", "kill -9 $(cat /run/mysqld.pid)"); err != nil {
		return err
	}
	killed := time.Now()
	d.PrintObserved("killed in %s", pod)
	var now int
	err = d.Poll("another primary", commandLimit, func(context.Context) error {
		now, err = d.findPrimary()
		if err == nil && now == old {
			err = errors.New("expected another primary")
		}
		if err == nil {
			// The status may be ahead of the server: only a write proves that it takes writes.
			_, err = d.runSQL(now, "REPLACE INTO app.t VALUES (3, 'after')")
		}
		return err
	})
	if err != nil {
		return err
	}
	d.PrintObserved("instance %d takes writes, %.1f s after the kill", now, time.Since(killed).Seconds())
	if err := d.awaitHealthy(); err != nil {
		return err
	}
	d.PrintObserved("the old primary is back as a replica, and the cluster is healthy")
	if err := d.showCluster(); err != nil {
		return err
	}
	return d.verifyEqualRows()
}

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

func (d *mysqlDemo) showCluster() error {
	out, err := d.kubectl("get", "mysqlcluster", clusterName)
	if err != nil {
		return err
	}
	d.PrintObserved("kubectl get mysqlcluster")
	d.QuoteOutput(out)
	return nil
}

func (d *mysqlDemo) runSQL(index int, statements ...string) (string, error) {
	return d.kubectlMoco("mysql", "-u", "moco-admin", "--index", strconv.Itoa(index), clusterName, "--", "-Nr", "-e", strings.Join(statements, "; "))
}

func (d *mysqlDemo) conditionStatus(kind string) (string, error) {
	return d.kubectl("get", "mysqlcluster", clusterName, "-o", `jsonpath={.status.conditions[?(@.type=="`+kind+`")].status}`)
}

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
