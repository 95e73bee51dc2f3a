// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
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
)

// hibernate asks for hibernation and verifies that the machines' processes are really gone.
func (d *clusterDemo) hibernate() error {
	d.BeginStep("kubectl patch cd " + clusterName + " … powerState: Hibernating")
	before, err := d.listInstances()
	if err != nil {
		return err
	}
	pids := make([]int, 0, len(before))
	for _, i := range before {
		pids = append(pids, i.PID)
	}
	if err := verifyAllAlive(pids); err != nil {
		return err
	}
	d.AddNote("the machines are the processes %v", pids)
	if err := d.patchPowerState(clusterName, "Hibernating"); err != nil {
		return err
	}
	if err := d.awaitPowerState("Hibernating"); err != nil {
		return err
	}
	if err := d.verifyInstancesAre("stopped"); err != nil {
		return err
	}
	for _, pid := range pids {
		// Signal 0 only asks whether the process exists.
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("expected process %d of a stopped machine to be gone, found it alive", pid)
		}
	}
	d.PrintObserved("the machines are stopped at the cloud, and their processes are gone")
	target, err := d.targetClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	if _, err := target.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
		return errors.New("expected the cluster's API to be gone, found it answers")
	}
	d.PrintObserved("the cluster's API does not answer any more")
	return d.showClusters()
}

// resume asks for the cluster back and prints every moment of its way.
func (d *clusterDemo) resume() error {
	d.BeginStep("kubectl patch cd " + clusterName + " … powerState: Running")
	asked := time.Now()
	if err := d.patchPowerState(clusterName, "Running"); err != nil {
		return err
	}
	if err := d.Poll("the machines", powerLimit, func(context.Context) error { return d.verifyInstancesAre("running") }); err != nil {
		return err
	}
	on, err := d.lastStateChange(clusterName)
	if err != nil {
		return err
	}
	d.PrintObserved("the machines run again, as new processes")
	target, err := d.targetClient()
	if err != nil {
		return err
	}
	if err := d.Poll("the cluster's API", readyLimit, isAnswering(target)); err != nil {
		return err
	}
	d.PrintObserved("the cluster's API answers")
	if err := d.awaitPowerState("Running"); err != nil {
		return err
	}
	running := time.Now()
	if err := d.verifyCertificatesApproved(target, asked); err != nil {
		return err
	}
	if err := d.verifyNodesReady(target, on); err != nil {
		return err
	}
	d.PrintObserved("from the last machine's start to Running: %.1f s", running.Sub(on).Seconds())
	if err := d.showClusters(); err != nil {
		return err
	}
	events, err := d.kubectl("get", "events", "--sort-by=.metadata.creationTimestamp", "-o",
		`jsonpath={range .items[?(@.regarding.kind=="ClusterDeployment")]}{.reason}{": "}{.note}{"\n"}{end}{range .items[?(@.involvedObject.kind=="ClusterDeployment")]}{.reason}{": "}{.message}{"\n"}{end}`)
	if err != nil {
		return err
	}
	d.PrintObserved("its events:")
	d.QuoteOutput(events)
	return nil
}

func isAnswering(target kubernetes.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := target.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	}
}

func (d *clusterDemo) targetClient() (kubernetes.Interface, error) {
	return kubeclient.NewClient(d.config.targetKubeconfig())
}

func verifyAllAlive(pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err != nil {
			return fmt.Errorf("expected machine process %d to be alive: %w", pid, err)
		}
	}
	return nil
}

// kubectl runs the bundled kubectl against the hub.
func (d *clusterDemo) kubectl(args ...string) (string, error) {
	return d.RunCommand(runner.CommandLine{Program: d.config.Kubectl, Args: args, Limit: commandLimit})
}

func (d *clusterDemo) patchPowerState(name, state string) error {
	_, err := d.kubectl("patch", "cd", name, "--type=merge", "-p", "spec:\n powerState: "+state)
	return err
}

func (d *clusterDemo) verifyPowerState(name, want string) error {
	state, err := d.kubectl("get", "cd", name, "-o", "jsonpath={.status.powerState}")
	if err == nil && state != want {
		err = fmt.Errorf("expected power state %s, found %q", want, state)
	}
	return err
}

func (d *clusterDemo) awaitPowerState(want string) error {
	err := d.Poll("power state "+want, powerLimit, func(context.Context) error { return d.verifyPowerState(clusterName, want) })
	if err != nil {
		return err
	}
	d.PrintObserved("status.powerState is %s", want)
	return nil
}

func (d *clusterDemo) showClusters() error {
	table, err := d.kubectl("get", "cd")
	if err != nil {
		return err
	}
	d.PrintObserved("kubectl get cd:")
	d.QuoteOutput(table)
	return nil
}

// outliveCertificates waits until the client certificates on the stopped nodes' disks have expired.
func (d *clusterDemo) outliveCertificates() error {
	d.BeginStep("Sleep until the nodes' certificates have expired")
	files, err := filepath.Glob(filepath.Join(d.config.clusterDir(), "*", "pki", "kubelet-client-current.pem"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("expected the nodes' client certificates in %s, found none", d.config.clusterDir())
	}
	var last time.Time
	for _, file := range files {
		certs, err := certutil.CertsFromFile(file)
		if err != nil {
			return fmt.Errorf("read certificate: %w", err)
		}
		// The file of the kubelet holds the certificate and its key.
		if expiry := certs[0].NotAfter; expiry.After(last) {
			last = expiry
		}
	}
	d.AddNote("the last of %d client certificates expires in %.0f s", len(files), time.Until(last).Seconds())
	err = d.Poll("the certificates to expire", d.config.Certificates+time.Minute, func(context.Context) error {
		if left := time.Until(last); left > 0 {
			return fmt.Errorf("expected the certificates to have expired, %s are left", left.Round(time.Second))
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.PrintObserved("every client certificate of the nodes has expired; nobody in the cluster will approve new ones")
	return nil
}

// verifyCertificatesApproved verifies that new client certificates were asked for with the bootstrap token and approved by Torpor.
func (d *clusterDemo) verifyCertificatesApproved(target kubernetes.Interface, since time.Time) error {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	list, err := target.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list certificate requests: %w", err)
	}
	approved := 0
	for _, csr := range list.Items {
		// The API server keeps times in whole seconds.
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
		return errors.New("expected certificate requests approved by Torpor, found none")
	}
	return nil
}

// verifyNodesReady verifies that every node is Ready by a heartbeat from after the machines' start.
func (d *clusterDemo) verifyNodesReady(target kubernetes.Interface, since time.Time) error {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	nodes, err := target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			// The API server keeps times in whole seconds.
			if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionTrue || c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))) {
				return fmt.Errorf("expected node %s ready since %s, found %s with a heartbeat of %s", n.Name, since, c.Status, c.LastHeartbeatTime)
			}
		}
	}
	d.PrintObserved("%d nodes are Ready, by heartbeats from after the start of the machines", len(nodes.Items))
	return nil
}
