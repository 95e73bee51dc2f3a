// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package mysql demonstrates how clustering and reconciliation of a real MySQL cluster are stopped and started. The
// cluster has real pods on this machine, or runs in a Kubernetes cluster of the user. It prints only what it has
// observed.
package mysql

import (
	"context"
	_ "embed" // The manifest is a separate file, as a user would write it.
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

const (
	// clusterName is the name of the MySQLCluster.
	clusterName = "test"
	namespace   = "torpor-demo"
	// commandLimit is above the duration of any command, including waits.
	commandLimit = 5 * time.Minute
	// observationTime is how long the demo checks that nothing interferes.
	observationTime = 5 * time.Second
)

// Config is the configuration of the demo.
type Config struct {
	runner.Config

	// Kubeconfig of a cluster in which Torpor runs; empty means a cluster with real pods on this machine.
	Kubeconfig string
	// Image of the MySQL server.
	Image string
	// Parts and MySQL are the folders filled by make node-parts and make mysql; ConfigDir is the folder config of
	// the repository.
	Parts, MySQL, ConfigDir string
}

type mysqlDemo struct {
	*runner.Runner

	config Config
}

// RunDemo runs all steps and then removes everything. It returns nil only if every expected result was observed.
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
		Steps: []func(){
			makeCluster, d.createMySQLCluster, d.writeRow, d.stopClustering, d.advanceReplicas, d.startClustering, d.stopReconciliation,
			d.killPrimary,
		},
		Duration: "two minutes",
		LastStep: "Remove everything",
	})
}

//go:embed cluster.yaml
var manifest string

// probes is the address at which the manager of the demo answers readiness probes.
const probes = "127.77.250.1:8081"

// startPodCluster starts a cluster with real pods on this machine, and torpor next to it.
func (d *mysqlDemo) startPodCluster() {
	d.BeginStep("A cluster with real pods on this machine: containerd, the kubelet, Services, DNS, volumes")
	if os.Geteuid() != 0 {
		runner.FailStep("expected to be root on Debian, since real pods need namespaces and mounts; " +
			"or use your own cluster with Torpor in it: make demo NAME=mysql DEMO=--kubeconfig=FILE")
	}
	d.OnCleanUp(func() {
		d.run(d.config.Local, "", "pods", "down", "--dir", d.config.Dir)
		d.PrintObserved("every process that was started has ended, and nothing is left on the machine")
	})
	d.run(d.config.Local, "", "pods", "up", "--dir", d.config.Dir, "--parts", d.config.Parts, "--mysql", d.config.MySQL)
	nodes := d.kubectl("get", "nodes")
	d.PrintObserved("kubectl get nodes")
	d.QuoteOutput(nodes)
	for _, args := range [][]string{
		{"create", "namespace", namespace},
		{"apply", "--server-side", "-k", filepath.Join(d.config.ConfigDir, "crd")},
	} {
		d.kubectl(args...)
	}
	d.PrintObserved("kubectl apply --server-side -k config/crd")
	d.startManager()
}

// startManager runs torpor on this machine, which can reach the addresses of pods.
func (d *mysqlDemo) startManager() {
	manager := d.StartProgram("manager", d.config.Torpor, "manager", "--kubeconfig", d.Kubeconfig,
		"--metrics-address", "0", "--probe-address", probes)
	d.AwaitReady(manager, probes)
	d.PrintObserved("torpor manager is ready")
}

// useGivenCluster uses a cluster in which Torpor already runs; its pods may not be reachable from this machine.
func (d *mysqlDemo) useGivenCluster() {
	d.BeginStep("The cluster of " + d.Kubeconfig)
	out := d.kubectl("get", "pods", "--all-namespaces", "-l", "app.kubernetes.io/name=torpor", "-o", "jsonpath={.items[*].metadata.name}")
	if out == "" {
		runner.FailStep("expected a running Torpor, found none: install it as described in the README, with config/crd")
	}
	d.kubectl("create", "namespace", namespace)
	d.OnCleanUp(func() { d.kubectl("delete", "namespace", namespace) })
	d.PrintObserved("Torpor runs there: %s", out)
}

func (d *mysqlDemo) createMySQLCluster() {
	d.BeginStep("A MySQLCluster of three instances")
	text := strings.ReplaceAll(manifest, "IMAGE", d.config.Image)
	d.run(d.config.Kubectl, text, "--namespace", namespace, "apply", "-f", "-")
	d.PrintObserved("kubectl apply -f local/demo/mysql/cluster.yaml")
	d.OnCleanUp(d.deleteMySQLCluster)
	d.awaitHealthy()
	d.PrintObserved("it is healthy")
	pods := d.kubectl("get", "pods")
	d.PrintObserved("kubectl get pods")
	d.QuoteOutput(pods)
	d.showCluster()
}

func (d *mysqlDemo) deleteMySQLCluster() {
	d.kubectl("delete", "mysqlcluster", clusterName, "--timeout="+commandLimit.String())
	d.Poll("the deletion of the pods and volumes", commandLimit, func(context.Context) {
		if left := d.kubectl("get", "pods,pvc,services,statefulsets", "-o", "name"); left != "" {
			runner.FailStep("expected nothing in namespace %s, found %s", namespace, left)
		}
	})
	d.PrintObserved("kubectl delete mysqlcluster %s: its pods, volumes and Services are gone", clusterName)
}

// replicaIndexes returns the replicas, instances 1 and 2, while the first instance is the primary.
func replicaIndexes() []int { return []int{1, 2} }

func (d *mysqlDemo) writeRow() {
	d.BeginStep("Write to the primary, read from the replicas")
	out := d.runSQL(0, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO app.t VALUES (1, 'replicated')",
		"SELECT @@version")
	d.PrintObserved("kubectl moco mysql -u moco-admin %s -- -e \"… INSERT INTO app.t VALUES (1, 'replicated')\" (MySQL %s)", clusterName, out)
	for _, i := range replicaIndexes() {
		d.Poll("the row", commandLimit, func(context.Context) {
			if v := d.runSQL(i, "SELECT v FROM app.t WHERE id = 1"); v != "replicated" {
				runner.FailStep("expected the row in instance %d, found %q", i, v)
			}
		})
	}
	d.PrintObserved("the row is in both replicas")
}

func (d *mysqlDemo) stopClustering() {
	d.BeginStep("A DBA stops clustering")
	d.showMoco("stop", "clustering", clusterName, "--reason", "compare replicas", "--until", "40m", "--wait")
	d.showCluster()
	d.showMoco("status")
}

func (d *mysqlDemo) advanceReplicas() {
	d.BeginStep("The DBA stops the replicas' SQL threads and advances their GTIDs by hand")
	for _, i := range replicaIndexes() {
		d.runSQL(i, "STOP REPLICA SQL_THREAD")
	}
	d.PrintObserved("STOP REPLICA SQL_THREAD on instances 1 and 2")
	executed := d.runSQL(0, "INSERT INTO app.t VALUES (2, 'by hand')", "SELECT @@gtid_executed")
	server, _, _ := strings.Cut(executed, ":")
	// The insert is the last transaction in the set, so the set ends with its number.
	number := server + ":" + executed[strings.LastIndexAny(executed, ":-")+1:]
	d.PrintObserved("the primary has committed %s", number)
	for _, i := range replicaIndexes() {
		d.runSQL(i, "SET GLOBAL super_read_only = OFF", "SET GTID_NEXT = '"+number+"'", "INSERT INTO app.t VALUES (2, 'by hand')",
			"SET GTID_NEXT = 'AUTOMATIC'", "SET GLOBAL super_read_only = ON")
	}
	d.PrintObserved("SET GTID_NEXT and the same row, on instances 1 and 2")
	d.observeFor(func() {
		for _, i := range replicaIndexes() {
			got := d.runSQL(i, "SELECT SERVICE_STATE FROM performance_schema.replication_applier_status", "SELECT @@gtid_executed")
			if want := "OFF\n" + executed; got != want {
				runner.FailStep("instance %d: expected a stopped SQL thread and the GTIDs %s, found %q", i, executed, got)
			}
		}
	})
	d.PrintObserved("nothing has interfered: the SQL threads are still stopped")
}

func (d *mysqlDemo) startClustering() {
	d.BeginStep("The DBA starts clustering again")
	d.showMoco("start", "clustering", clusterName, "--wait")
	d.awaitHealthy()
	d.showCluster()
	d.verifyEqualRows()
}

func (d *mysqlDemo) verifyEqualRows() {
	var sum string
	d.Poll("equal rows", commandLimit, func(context.Context) {
		var sums []string
		for i := range len(replicaIndexes()) + 1 {
			sums = append(sums, d.runSQL(i, "CHECKSUM TABLE app.t"))
		}
		sum = sums[0]
		if len(slices.Compact(sums)) != 1 {
			runner.FailStep("expected equal checksums, found %q", sums)
		}
	})
	d.PrintObserved("CHECKSUM TABLE is the same on all instances: %s", strings.ReplaceAll(sum, "\t", " "))
}

func (d *mysqlDemo) stopReconciliation() {
	d.BeginStep("While reconciliation is stopped, a change to the spec has no effect")
	d.showMoco("stop", "reconciliation", clusterName, "--wait")
	d.kubectl("patch", "mysqlcluster", clusterName, "--type=merge", "-p",
		`{"spec":{"primaryServiceTemplate":{"metadata":{"labels":{"team":"data"}}}}}`)
	d.PrintObserved("kubectl patch mysqlcluster %s: request the label team=data on the Service of the primary", clusterName)
	label := func(want string) {
		if got := d.kubectl("get", "service", "moco-"+clusterName+"-primary", "-o", "jsonpath={.metadata.labels.team}"); got != want {
			runner.FailStep("expected the label team=%s, found %q", want, got)
		}
	}
	d.observeFor(func() { label("") })
	d.PrintObserved("the Service is unchanged")
	d.showCluster()
	d.showMoco("start", "reconciliation", clusterName, "--wait")
	d.Poll("the label", commandLimit, func(context.Context) { label("data") })
	d.PrintObserved("the Service has the label")
}

// killPrimary kills the primary's server and measures how long no writes are possible.
func (d *mysqlDemo) killPrimary() {
	d.BeginStep("kill -9 of the primary's server")
	old := d.findPrimary()
	pod := fmt.Sprintf("moco-%s-%d", clusterName, old)
	d.kubectl("exec", pod, "-c", "mysqld", "--", "sh", "-c", "kill -9 $(cat /run/mysqld.pid)")
	killed := time.Now()
	d.PrintObserved("killed in %s", pod)
	var now int
	d.Poll("another primary", commandLimit, func(context.Context) {
		if now = d.findPrimary(); now == old {
			runner.FailStep("expected another primary")
		}
		// The status may change before the server accepts writes, so test a write.
		d.runSQL(now, "REPLACE INTO app.t VALUES (3, 'after')")
	})
	d.PrintObserved("instance %d accepts writes, %.1f s after the kill", now, time.Since(killed).Seconds())
	d.awaitHealthy()
	d.PrintObserved("the old primary is back as a replica, and the cluster is healthy")
	d.showCluster()
	d.verifyEqualRows()
}

func (d *mysqlDemo) run(program, stdin string, args ...string) string {
	return d.RunCommand(runner.CommandLine{Program: program, Args: args, Stdin: stdin, Limit: commandLimit})
}

func (d *mysqlDemo) kubectl(args ...string) string {
	return d.run(d.config.Kubectl, "", append([]string{"--namespace", namespace}, args...)...)
}

// kubectlMoco runs the program kubectl-moco in the namespace of the demo.
func (d *mysqlDemo) kubectlMoco(args ...string) string {
	program := filepath.Join(filepath.Dir(d.config.Torpor), "kubectl-moco")
	return d.run(program, "", append([]string{"--namespace", namespace}, args...)...)
}

func (d *mysqlDemo) showMoco(args ...string) {
	out := d.kubectlMoco(args...)
	d.PrintObserved("kubectl moco %s", formatCommandLine(args))
	d.QuoteOutput(out)
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

func (d *mysqlDemo) showCluster() {
	out := d.kubectl("get", "mysqlcluster", clusterName)
	d.PrintObserved("kubectl get mysqlcluster")
	d.QuoteOutput(out)
}

func (d *mysqlDemo) runSQL(index int, statements ...string) string {
	return d.kubectlMoco("mysql", "-u", "moco-admin", "--index", strconv.Itoa(index), clusterName, "--", "-Nr", "-e", strings.Join(statements, "; "))
}

func (d *mysqlDemo) conditionStatus(kind string) string {
	return d.kubectl("get", "mysqlcluster", clusterName, "-o", `jsonpath={.status.conditions[?(@.type=="`+kind+`")].status}`)
}

func (d *mysqlDemo) findPrimary() int {
	out := d.kubectl("get", "mysqlcluster", clusterName, "-o", "jsonpath={.status.currentPrimaryIndex}")
	// A new cluster has no primary yet.
	if out == "" {
		runner.FailStep("expected a primary in the status, found none")
	}
	index, err := strconv.Atoi(out)
	runner.ExpectNoError(err)
	return index
}

func (d *mysqlDemo) awaitHealthy() {
	d.Poll("the cluster to be healthy", commandLimit, func(context.Context) {
		if status := d.conditionStatus("Healthy"); status != "True" {
			runner.FailStep("expected Healthy to be True, found %q", status)
		}
	})
}

// observeFor repeats f for observationTime, or until its first error.
func (d *mysqlDemo) observeFor(f func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(observationTime); time.Now().Before(end); {
		f()
		select {
		case <-d.Context.Done():
			runner.ExpectNoError(context.Cause(d.Context))
		case <-tick.C:
		}
	}
}
