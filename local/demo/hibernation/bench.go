// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/local/demo/runner"
	"github.com/torpor-dev/torpor/local/figures"
	"github.com/torpor-dev/torpor/local/kubeclient"
	"github.com/torpor-dev/torpor/local/targetcluster"
)

const (
	// bareLatency is the latency in the figures that other projects have published. It is increased slightly in each
	// of latencyShifts rounds, so that the figures do not depend on how the latency and Torpor's intervals happen to
	// coincide.
	bareLatency   = 20 * time.Second
	latencyShift  = 300 * time.Millisecond
	latencyShifts = 7
	bareMachines  = 3
	bareName      = "bare"
	bareNode      = "bare-node"
	percentile    = 0.95
	leaseInterval = time.Second
	settleTime    = 2 * time.Second
)

type transitionCost struct {
	overhead, writes, calls float64
}

// Rounds is the number of measurements of one cluster: of a real cluster whose certificates expire, and of a cluster
// with idle machines.
type Rounds struct{ Real, Bare int }

// RunBenchmarks measures one cluster over several rounds and returns the figures.
func RunBenchmarks(ctx context.Context, c Config, rounds Rounds) (figures.Figures, error) {
	d, err := newClusterDemo(ctx, c)
	if err != nil {
		return nil, err
	}
	f := figures.Figures{}
	if err = runner.RunSteps(append(d.environmentSteps(), func() { d.measureAll(f, rounds) })...); err != nil {
		err = fmt.Errorf("%w; logs are in %s", err, d.config.Dir)
	}
	return f, errors.Join(err, d.CleanUp(), verifyNoProcesses())
}

func (d *clusterDemo) measureAll(f figures.Figures, rounds Rounds) {
	d.measureMemory(f, "manager_rss_idle_mib")
	for i := range rounds.Real {
		d.BeginStep(fmt.Sprintf("Round %d of %d: a real cluster stays stopped until its certificates have expired", i+1, rounds.Real))
		d.measureExpired(f)
	}
	alive, stop := context.WithCancel(d.Context)
	defer stop()
	d.keepNodeAlive(alive)
	d.createBareCluster()
	for i := range rounds.Bare {
		latency := bareLatency + time.Duration(i%latencyShifts)*latencyShift
		d.BeginStep(fmt.Sprintf("Round %d of %d: power alone, machines take %s", i+1, rounds.Bare, latency))
		d.setCloudLatency(latency)
		d.measureBare(f)
	}
	for _, name := range []string{"hibernate_overhead", "resume_overhead"} {
		if rounds.Bare == 0 {
			break
		}
		f.AddValue(name+"_p95_seconds", f.Percentile(name+"_seconds", percentile))
	}
	d.measureMemory(f, "manager_rss_end_mib")
}

func (d *clusterDemo) measureMemory(f figures.Figures, name string) {
	f.AddValue(name, d.managerMemoryMiB())
}

func (d *clusterDemo) createBareCluster() {
	d.BeginStep("A cluster of bare machines, whose API always answers")
	// Delete the other cluster, because it would still be reconciled, and its calls must not be counted.
	d.kubectl("delete", "cd", clusterName)
	c := d.clusterConfig(bareName)
	c.Nodes, c.Certificates = 1, time.Hour
	runner.ExpectNoError(targetcluster.CreateBare(d.Context, c, bareMachines))
	d.Poll("the bare machines", powerLimit, func(context.Context) { d.verifyPowerState(bareName, "Running") })
}

// keepNodeAlive acts as the kubelet of the bare cluster: it renews a node's lease until ctx ends.
func (d *clusterDemo) keepNodeAlive(ctx context.Context) {
	hub, err := kubeclient.NewClient(d.config.hubKubeconfig())
	runner.ExpectNoError(err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: bareNode}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Bench", LastHeartbeatTime: metav1.Now()},
	}}}
	_, err = hub.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	runner.ExpectNoError(err)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: bareNode}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new(bareNode), LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro()),
	}}
	leases := hub.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	runner.ExpectNoError(err)
	go func() {
		for pause(ctx, leaseInterval) == nil {
			if current, err := leases.Get(ctx, bareNode, metav1.GetOptions{}); err == nil {
				current.Spec.RenewTime = new(metav1.NowMicro())
				// A failed renewal does not matter, because the next renewal follows soon.
				_, _ = leases.Update(ctx, current, metav1.UpdateOptions{})
			}
		}
	}()
}

// measureExpired measures the resume of a real cluster: from the machines' start to Running.
func (d *clusterDemo) measureExpired(f figures.Figures) {
	d.measureTransition(clusterName, "Hibernating")
	d.outliveCertificates()
	t := d.measureTransition(clusterName, "Running")
	f.AddValue("resume_after_expiry_seconds", t.overhead)
	f.AddValue("resume_after_expiry_api_writes", t.writes)
	d.PrintObserved("Running %.1f s after the start of the last machine", t.overhead)
}

func (d *clusterDemo) measureBare(f figures.Figures) {
	for _, way := range []struct{ want, name string }{{"Hibernating", "hibernate"}, {"Running", "resume"}} {
		t := d.measureTransition(bareName, way.want)
		f.AddValue(way.name+"_overhead_seconds", t.overhead)
		f.AddValue(way.name+"_api_writes", t.writes)
		f.AddValue(way.name+"_cloud_calls", t.calls)
		f.AddValue("api_writes_per_transition", t.writes)
		f.AddValue("cloud_calls_per_transition", t.calls)
		d.PrintObserved("%s: %.2f s after the last machine's change, %.0f API writes, %.0f cloud calls", way.want, t.overhead, t.writes, t.calls)
	}
}

// measureTransition requests a power state and measures Torpor's requests until the state is reported.
func (d *clusterDemo) measureTransition(name, want string) transitionCost {
	writes, calls := d.countManagerWrites(), d.countCloudCalls()
	d.patchPowerState(name, want)
	reported := d.awaitReport(name, want)
	callsAfter, changed := d.countCloudCalls(), d.lastStateChange(name)
	// Events are written a little later, so writes are counted after a pause. Cloud calls during the pause are not
	// counted.
	runner.ExpectNoError(pause(d.Context, settleTime))
	return transitionCost{overhead: reported.Sub(changed).Seconds(), writes: d.countManagerWrites() - writes, calls: callsAfter - calls}
}

func (d *clusterDemo) awaitReport(name, want string) time.Time {
	args := []string{"wait", "cd", name, "--for=jsonpath={.status.powerState}=" + want, "--timeout=" + powerLimit.String()}
	d.RunCommand(runner.CommandLine{Program: d.config.Kubectl, Args: args, Limit: powerLimit})
	return time.Now()
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
