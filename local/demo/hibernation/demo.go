// SPDX-License-Identifier: Apache-2.0

// Package hibernation runs a hub, a cloud, a cluster and torpor as real programs, for the benchmarks and for the
// demo. The demo prints only what it has observed.
package hibernation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"

	"github.com/torpor-dev/torpor/local/demo/runner"
	"github.com/torpor-dev/torpor/local/kubeclient"
	"github.com/torpor-dev/torpor/local/targetcluster"
)

const (
	clusterName  = "mycluster"
	accessKey    = "AKIALOCAL"
	region       = "local-1"
	readyLimit   = 2 * time.Minute
	powerLimit   = 3 * time.Minute
	commandLimit = 30 * time.Second
	attemptLimit = 10 * time.Second
)

// Config is the configuration of the demo and the benchmarks.
type Config struct {
	runner.Config

	// CRDs is the folder of the custom resource definitions.
	CRDs string
	// Latency is how long the cloud takes to start or stop a machine.
	Latency time.Duration
	// Certificates is how long the nodes' certificates are valid.
	Certificates time.Duration
}

func (c Config) hubKubeconfig() string { return c.FilePath("hub", "admin.kubeconfig") }

func (c Config) clusterDir() string { return c.FilePath(clusterName) }

func (c Config) targetKubeconfig() string {
	return filepath.Join(c.clusterDir(), "control-plane", "admin.kubeconfig")
}

type clusterDemo struct {
	*runner.Runner

	config   Config
	memory   *memoryWatch
	cloudURL string
	probes   string
	metrics  string
}

func newClusterDemo(ctx context.Context, c Config) (*clusterDemo, error) {
	r, err := runner.NewRunner(ctx, &c.Config)
	if err != nil {
		return nil, err
	}
	r.Kubeconfig = c.hubKubeconfig()
	return &clusterDemo{Runner: r, config: c, memory: watchMemory(ctx)}, nil
}

// RunDemo shows the hibernation of a cluster and then stops everything. It returns nil only if every expected result
// was observed.
func RunDemo(ctx context.Context, c Config) error {
	d, err := newClusterDemo(ctx, c)
	if err != nil {
		return err
	}
	return d.RunDemo(runner.Demo{
		Steps:    append(d.environmentSteps(), d.installPolicies, d.hibernate, d.outliveCertificates, d.resume),
		Duration: "90 seconds",
		LastStep: "Stop everything",
		VerifyCleanUp: func() {
			runner.ExpectNoError(verifyNoProcesses())
			d.PrintObserved("every process that was started has ended")
		},
		Summary: func() string {
			return fmt.Sprintf("; at most %d MiB of memory were in use at once", d.memory.peakMiB())
		},
	})
}

// KeepEnvironment builds the environment of the demo, calls ready, and keeps it until ctx ends.
func KeepEnvironment(ctx context.Context, c Config, ready func()) error {
	d, err := newClusterDemo(ctx, c)
	if err != nil {
		return err
	}
	if err = runner.RunSteps(d.environmentSteps()...); err == nil {
		ready()
		<-ctx.Done()
	}
	return errors.Join(err, d.CleanUp())
}

func (d *clusterDemo) environmentSteps() []func() {
	return []func(){d.EmptyDir, d.startHubAndCloud, d.createCluster, d.startDormantManager, d.installCRD}
}

func (d *clusterDemo) startHubAndCloud() {
	d.BeginStep("A hub (a real Kubernetes control plane) and a cloud")
	hub := d.StartProgram("hub", d.config.Local, "control-plane", "--dir", d.config.FilePath("hub"))
	latency := d.config.Latency.String()
	cloud := d.StartProgram("cloud", d.config.Local, "cloud", "--dir", d.config.FilePath("cloud"), "--allow-commands",
		"--access-keys", accessKey, "--start-latency", latency, "--stop-latency", latency)
	d.cloudURL = d.AwaitLogLine(cloud, "ready:")
	d.PrintObserved("the cloud serves the EC2 API at %s; machines take %s to start and to stop", d.cloudURL, latency)
	d.AwaitLogLine(hub, "ready ")
	answer := d.kubectl("get", "--raw", "/version")
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	runner.ExpectNoError(json.Unmarshal([]byte(answer), &version))
	d.PrintObserved("the hub serves Kubernetes %s", version.GitVersion)
}

func (d *clusterDemo) clusterConfig(name string) targetcluster.Config {
	return targetcluster.Config{
		Name: name, Namespace: "default", Dir: d.config.FilePath(name), HubKubeconfig: d.config.hubKubeconfig(),
		Cloud: d.cloudURL, Region: region, AccessKey: accessKey, Program: d.config.Local, Version: "4.16.3",
	}
}

func (d *clusterDemo) createCluster() {
	d.BeginStep(fmt.Sprintf("Cluster %s: a control-plane machine and two nodes in that cloud", clusterName))
	c := d.clusterConfig(clusterName)
	c.Nodes, c.Certificates, c.Heartbeat, c.Progress = 2, d.config.Certificates, 3*time.Second, d.PrintObserved
	result, err := targetcluster.CreateCluster(d.Context, c)
	runner.ExpectNoError(err)
	if result.Applied {
		runner.FailStep("expected a hub without ClusterDeployments, found that it already serves them")
	}
	d.PrintObserved("its Secrets are in the hub; the hub does not serve the kind ClusterDeployment yet")
}

// startDormantManager starts torpor before any of its kinds is served, and verifies that it becomes ready and the
// controller is dormant.
func (d *clusterDemo) startDormantManager() {
	d.BeginStep("torpor manager, started before any CRD exists")
	addresses := runner.ReserveAddresses(d.Context, 2)
	d.metrics, d.probes = addresses[0], addresses[1]
	manager := d.StartProgram("manager", d.config.Torpor, "manager", "--kubeconfig", d.config.hubKubeconfig(),
		"--metrics-address", d.metrics, "--metrics-insecure", "--probe-address", d.probes)
	crds := d.kubectl("get", "crd", "-o", "name")
	if crds != "" {
		runner.FailStep("expected a hub without CRDs, found %q", crds)
	}
	d.AwaitReady(manager, d.probes)
	d.PrintObserved("the manager is ready, with no CRD in the hub")
	d.verifyControllerRuns(false)
	d.PrintObserved("the hibernation controller is dormant")
}

func (d *clusterDemo) installCRD() {
	d.BeginStep("Install the CRD: the controller starts")
	d.kubectl("apply", "--server-side", "-k", d.config.CRDs)
	d.Poll("the controller", readyLimit, func(context.Context) { d.verifyControllerRuns(true) })
	d.PrintObserved("the hibernation controller runs")
	d.kubectl("apply", "-f", filepath.Join(d.config.clusterDir(), "clusterdeployment.yaml"))
	d.awaitPowerState("Running")
	d.showClusters()
}

// hibernate requests hibernation and verifies that the machines' processes are really gone.
func (d *clusterDemo) hibernate() {
	d.BeginStep("kubectl patch cd " + clusterName + " … powerState: Hibernating")
	before := d.listInstances()
	pids := make([]int, 0, len(before))
	for _, i := range before {
		pids = append(pids, i.PID)
	}
	verifyAllAlive(pids)
	d.AddNote("the machines are the processes %v", pids)
	d.patchPowerState(clusterName, "Hibernating")
	d.awaitPowerState("Hibernating")
	d.verifyInstancesAre("stopped")
	for _, pid := range pids {
		// Signal 0 only checks whether the process exists.
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			runner.FailStep("expected process %d of a stopped machine to be gone, found it alive", pid)
		}
	}
	d.PrintObserved("the machines are stopped in the cloud, and their processes are gone")
	target := d.targetClient()
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	if _, err := target.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
		runner.FailStep("expected no answer from the cluster's API, found one")
	}
	d.PrintObserved("the cluster's API does not answer any more")
	d.showClusters()
}

// resume requests the cluster's resume and prints every step that it observes.
func (d *clusterDemo) resume() {
	d.BeginStep("kubectl patch cd " + clusterName + " … powerState: Running")
	asked := time.Now()
	d.patchPowerState(clusterName, "Running")
	d.Poll("the machines", powerLimit, func(context.Context) { d.verifyInstancesAre("running") })
	on := d.lastStateChange(clusterName)
	d.PrintObserved("the machines run again, as new processes")
	target := d.targetClient()
	d.Poll("the cluster's API", readyLimit, isAnswering(target))
	d.PrintObserved("the cluster's API answers")
	d.awaitPowerState("Running")
	running := time.Now()
	d.verifyCertificatesApproved(target, asked)
	d.verifyNodesReady(target, on)
	d.PrintObserved("from the last machine's start to Running: %.1f s", running.Sub(on).Seconds())
	d.showClusters()
	events := d.kubectl("get", "events", "--sort-by=.metadata.creationTimestamp", "-o",
		`jsonpath={range .items[?(@.regarding.kind=="ClusterDeployment")]}{.reason}{": "}{.note}{"\n"}{end}{range .items[?(@.involvedObject.kind=="ClusterDeployment")]}{.reason}{": "}{.message}{"\n"}{end}`)
	d.PrintObserved("its events:")
	d.QuoteOutput(events)
}

func isAnswering(target kubernetes.Interface) func(context.Context) {
	return func(ctx context.Context) {
		_, err := target.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		runner.ExpectNoError(err)
	}
}

func (d *clusterDemo) targetClient() kubernetes.Interface {
	client, err := kubeclient.NewClient(d.config.targetKubeconfig())
	runner.ExpectNoError(err)
	return client
}

func verifyAllAlive(pids []int) {
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err != nil {
			runner.FailStep("expected machine process %d to be alive: %w", pid, err)
		}
	}
}

func (d *clusterDemo) kubectl(args ...string) string {
	return d.RunCommand(runner.CommandLine{Program: d.config.Kubectl, Args: args, Limit: commandLimit})
}

func (d *clusterDemo) patchPowerState(name, state string) {
	d.kubectl("patch", "cd", name, "--type=merge", "-p", "spec:\n powerState: "+state)
}

func (d *clusterDemo) verifyPowerState(name, want string) {
	if state := d.kubectl("get", "cd", name, "-o", "jsonpath={.status.powerState}"); state != want {
		runner.FailStep("expected power state %s, found %q", want, state)
	}
}

func (d *clusterDemo) awaitPowerState(want string) {
	d.Poll("power state "+want, powerLimit, func(context.Context) { d.verifyPowerState(clusterName, want) })
	d.PrintObserved("status.powerState is %s", want)
}

func (d *clusterDemo) showClusters() {
	table := d.kubectl("get", "cd")
	d.PrintObserved("kubectl get cd:")
	d.QuoteOutput(table)
}

// outliveCertificates waits until the client certificates on the stopped nodes' disks have expired.
func (d *clusterDemo) outliveCertificates() {
	d.BeginStep("Stay stopped until the nodes' certificates have expired")
	files, err := filepath.Glob(filepath.Join(d.config.clusterDir(), "*", "pki", "kubelet-client-current.pem"))
	if err != nil || len(files) == 0 {
		runner.FailStep("expected the nodes' client certificates in %s, found none", d.config.clusterDir())
	}
	var last time.Time
	for _, file := range files {
		certs, err := certutil.CertsFromFile(file)
		runner.ExpectNoError(err)
		// The kubelet's file contains the certificate and its key.
		if expiry := certs[0].NotAfter; expiry.After(last) {
			last = expiry
		}
	}
	d.AddNote("the last of %d client certificates expires in %.0f s", len(files), time.Until(last).Seconds())
	d.Poll("the certificates to expire", d.config.Certificates+time.Minute, func(context.Context) {
		if left := time.Until(last); left > 0 {
			runner.FailStep("expected the certificates to have expired, %s are left", left.Round(time.Second))
		}
	})
	d.PrintObserved("all client certificates of the nodes have expired; nothing in the cluster approves new certificates")
}

// verifyCertificatesApproved verifies that Torpor has approved at least one new request for a node's client
// certificate.
func (d *clusterDemo) verifyCertificatesApproved(target kubernetes.Interface, since time.Time) {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	list, err := target.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	runner.ExpectNoError(err)
	approved := 0
	for _, csr := range list.Items {
		// The API server stores times in whole seconds.
		if csr.CreationTimestamp.Time.Before(since.Truncate(time.Second)) || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
			continue
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateApproved && c.Reason == "TorporResumeApprove" {
				approved++
				d.PrintObserved("certificate request %s of %s was approved by Torpor", csr.Name, csr.Spec.Username)
			}
		}
	}
	if approved == 0 {
		runner.FailStep("expected certificate requests approved by Torpor, found none")
	}
}

func (d *clusterDemo) verifyNodesReady(target kubernetes.Interface, since time.Time) {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	nodes, err := target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	runner.ExpectNoError(err)
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			// The API server stores times in whole seconds.
			if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionTrue || c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))) {
				runner.FailStep("expected node %s ready since %s, found %s with a heartbeat of %s", n.Name, since, c.Status, c.LastHeartbeatTime)
			}
		}
	}
	d.PrintObserved("%d nodes are Ready, with heartbeats since the start of the machines", len(nodes.Items))
}
