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
	// bareLatency is the latency of the figures that others have published. Each round takes a little longer than the
	// last, so that the figures do not depend on how the latency and Torpor's pace happen to meet.
	bareLatency   = 20 * time.Second
	latencyShift  = 700 * time.Millisecond
	bareMachines  = 3
	bareName      = "bare"
	bareNode      = "bare-node"
	leaseInterval = time.Second
	settleTime    = 2 * time.Second
)

// transitionCost is what one way from one power state to the other has cost.
type transitionCost struct {
	overhead, writes, calls float64
}

// RunBenchmarks measures one cluster over several rounds and returns the figures, ready to be printed and kept.
func RunBenchmarks(ctx context.Context, c Config, rounds int) (figures.Figures, error) {
	d, err := newClusterDemo(ctx, c)
	if err != nil {
		return nil, err
	}
	f := figures.Figures{}
	if err = d.measureAll(f, rounds); err != nil {
		err = fmt.Errorf("%w; logs are in %s", err, d.config.Dir)
	}
	return f, errors.Join(err, d.CleanUp(), verifyNoProcesses())
}

func (d *clusterDemo) measureAll(f figures.Figures, rounds int) error {
	if err := runner.RunSteps(d.environmentSteps()...); err != nil {
		return err
	}
	if err := d.measureMemory(f, "manager_rss_idle_mib"); err != nil {
		return err
	}
	for i := range rounds {
		d.BeginStep(fmt.Sprintf("Round %d of %d: a real cluster sleeps until its certificates have expired", i+1, rounds))
		if err := d.measureExpired(f); err != nil {
			return err
		}
	}
	alive, stop := context.WithCancel(d.Context)
	defer stop()
	if err := d.keepNodeAlive(alive); err != nil {
		return err
	}
	if err := d.createBareCluster(); err != nil {
		return err
	}
	for i := range rounds {
		latency := bareLatency + time.Duration(i)*latencyShift
		d.BeginStep(fmt.Sprintf("Round %d of %d: power alone, machines take %s", i+1, rounds, latency))
		if err := errors.Join(d.setCloudLatency(latency), d.measureBare(f)); err != nil {
			return err
		}
	}
	return d.measureMemory(f, "manager_rss_end_mib")
}

func (d *clusterDemo) measureMemory(f figures.Figures, name string) error {
	used, err := d.managerMemoryMiB()
	if err == nil {
		f.AddValue(name, used)
	}
	return err
}

func (d *clusterDemo) createBareCluster() error {
	d.BeginStep("A cluster of bare machines, whose API always answers")
	// The other cluster is still looked after, and its calls must not be counted.
	if _, err := d.kubectl("delete", "cd", clusterName); err != nil {
		return err
	}
	c := d.clusterConfig(bareName)
	c.Nodes, c.Certificates = 1, time.Hour
	if err := targetcluster.CreateBare(d.Context, c, bareMachines); err != nil {
		return fmt.Errorf("make bare cluster: %w", err)
	}
	return d.Poll("the bare machines", powerLimit, func(context.Context) error { return d.verifyPowerState(bareName, "Running") })
}

// keepNodeAlive stands for the kubelet of the bare cluster: a node whose lease is renewed as long as ctx lives.
func (d *clusterDemo) keepNodeAlive(ctx context.Context) error {
	hub, err := kubeclient.NewClient(d.config.hubKubeconfig())
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: bareNode}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Bench", LastHeartbeatTime: metav1.Now()},
	}}}
	if _, err := hub.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node: %w", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: bareNode}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new(bareNode), LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro()),
	}}
	leases := hub.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if _, err := leases.Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create lease: %w", err)
	}
	go func() {
		for pause(ctx, leaseInterval) == nil {
			if current, err := leases.Get(ctx, bareNode, metav1.GetOptions{}); err == nil {
				current.Spec.RenewTime = new(metav1.NowMicro())
				// A renewal that is lost is made up for by the next.
				_, _ = leases.Update(ctx, current, metav1.UpdateOptions{})
			}
		}
	}()
	return nil
}

// measureExpired measures the resume of a real cluster: from the machines' start to Running.
func (d *clusterDemo) measureExpired(f figures.Figures) error {
	if _, err := d.measureTransition(clusterName, "Hibernating"); err != nil {
		return err
	}
	if err := d.outliveCertificates(); err != nil {
		return err
	}
	t, err := d.measureTransition(clusterName, "Running")
	if err != nil {
		return err
	}
	f.AddValue("resume_after_expiry_seconds", t.overhead)
	f.AddValue("resume_after_expiry_api_writes", t.writes)
	d.PrintObserved("Running %.1f s after the last machine was on", t.overhead)
	return nil
}

func (d *clusterDemo) measureBare(f figures.Figures) error {
	for _, way := range []struct{ want, name string }{{"Hibernating", "hibernate"}, {"Running", "resume"}} {
		t, err := d.measureTransition(bareName, way.want)
		if err != nil {
			return err
		}
		f.AddValue(way.name+"_overhead_seconds", t.overhead)
		f.AddValue(way.name+"_api_writes", t.writes)
		f.AddValue(way.name+"_cloud_calls", t.calls)
		f.AddValue("api_writes_per_transition", t.writes)
		f.AddValue("cloud_calls_per_transition", t.calls)
		d.PrintObserved("%s: %.2f s after the last machine's change, %.0f API writes, %.0f cloud calls", way.want, t.overhead, t.writes, t.calls)
	}
	return nil
}

// measureTransition asks for a power state and counts what Torpor did until it was reported.
func (d *clusterDemo) measureTransition(name, want string) (transitionCost, error) {
	writes, errWrites := d.countManagerWrites()
	calls, errCalls := d.countCloudCalls()
	if err := errors.Join(errWrites, errCalls, d.patchPowerState(name, want)); err != nil {
		return transitionCost{}, err
	}
	reported, err := d.awaitReport(name, want)
	if err != nil {
		return transitionCost{}, err
	}
	callsAfter, errCalls := d.countCloudCalls()
	changed, errChanged := d.lastStateChange(name)
	// Events are written a little later, so writes are counted after a pause; cloud calls of that pause are not.
	if err := errors.Join(errCalls, errChanged, pause(d.Context, settleTime)); err != nil {
		return transitionCost{}, err
	}
	writesAfter, err := d.countManagerWrites()
	return transitionCost{overhead: reported.Sub(changed).Seconds(), writes: writesAfter - writes, calls: callsAfter - calls}, err
}

// awaitReport watches, as kubectl does, until the power state is reported, and returns when that was.
func (d *clusterDemo) awaitReport(name, want string) (time.Time, error) {
	args := []string{"wait", "cd", name, "--for=jsonpath={.status.powerState}=" + want, "--timeout=" + powerLimit.String()}
	_, err := d.RunCommand(runner.CommandLine{Program: d.config.Kubectl, Args: args, Limit: powerLimit})
	return time.Now(), err
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
