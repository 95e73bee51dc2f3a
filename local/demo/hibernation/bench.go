// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/torpor-dev/torpor/local/figures"
	"github.com/torpor-dev/torpor/local/targetcluster"
)

const (
	// bareLatency is the latency of the figures that others have published. Each round takes a little longer than the
	// last, so that the figures do not depend on how the latency and Torpor's pace happen to meet.
	bareLatency  = 20 * time.Second
	latencyShift = 700 * time.Millisecond
	bareMachines = 3
	settleTime   = 2 * time.Second
	powerLimit   = 3 * time.Minute
)

// transition is one way from one power state to the other.
type transition struct {
	overhead, writes, calls float64
}

// Bench measures one cluster over several rounds and returns the medians, ready to be printed and kept.
func Bench(ctx context.Context, c Config, rounds int) (figures.Figures, error) {
	r, err := newRun(ctx, c)
	if err != nil {
		return nil, err
	}
	f := figures.Figures{}
	err = r.bench(f, rounds)
	if err != nil {
		err = fmt.Errorf("%w; logs are in %s", err, r.Dir)
	}
	return f, errors.Join(err, r.stopAll(), r.nothingLeft())
}

func (r *run) bench(f figures.Figures, rounds int) error {
	if err := play(r.stage()...); err != nil {
		return err
	}
	idle, err := r.managerMemory()
	if err != nil {
		return err
	}
	f.Add("manager_rss_idle_mib", idle)
	for i := range rounds {
		r.step(fmt.Sprintf("Round %d of %d: a real cluster sleeps until its certificates have expired", i+1, rounds))
		if err := r.expiredRound(f); err != nil {
			return err
		}
	}
	alive, stop := context.WithCancel(r.ctx)
	defer stop()
	if err := r.keepNodesAlive(alive); err != nil {
		return err
	}
	if err := r.makeBare(); err != nil {
		return err
	}
	for i := range rounds {
		latency := bareLatency + time.Duration(i)*latencyShift
		r.step(fmt.Sprintf("Round %d of %d: power alone, machines take %s", i+1, rounds, latency))
		if err := errors.Join(r.setLatency(latency), r.bareRound(f)); err != nil {
			return err
		}
	}
	busy, err := r.managerMemory()
	if err != nil {
		return err
	}
	f.Add("manager_rss_end_mib", busy)
	return nil
}

func (r *run) makeBare() error {
	r.step("A cluster of bare machines, whose API always answers")
	// The other cluster is still looked after, and its calls must not be counted.
	if _, err := r.kubectl("delete", "cd", clusterName); err != nil {
		return err
	}
	err := targetcluster.CreateBare(r.ctx, targetcluster.Config{
		Name: bareName, Namespace: "default", Dir: r.path(bareName), HubKubeconfig: r.hubKubeconfig(), Cloud: r.cloudURL,
		Region: region, AccessKey: accessKey, Nodes: 1, Certificates: time.Hour, Program: r.Local, Version: "4.16.3",
	}, bareMachines)
	if err != nil {
		return fmt.Errorf("make bare cluster: %w", err)
	}
	return r.poll("the bare machines", powerLimit, func(context.Context) error { return r.powerState(bareName, "Running") })
}

// expiredRound measures the wake-up of a real cluster: from the machines' start to Running.
func (r *run) expiredRound(f figures.Figures) error {
	if _, err := r.measure(clusterName, "Hibernating"); err != nil {
		return err
	}
	if err := r.outliveCertificates(); err != nil {
		return err
	}
	t, err := r.measure(clusterName, "Running")
	if err != nil {
		return err
	}
	f.Add("resume_after_expiry_seconds", t.overhead)
	f.Add("resume_after_expiry_api_writes", t.writes)
	r.saw("Running %.1f s after the last machine was on", t.overhead)
	return nil
}

func (r *run) bareRound(f figures.Figures) error {
	for _, way := range []struct{ want, name string }{{"Hibernating", "hibernate"}, {"Running", "resume"}} {
		t, err := r.measure(bareName, way.want)
		if err != nil {
			return err
		}
		f.Add(way.name+"_overhead_seconds", t.overhead)
		f.Add(way.name+"_api_writes", t.writes)
		f.Add(way.name+"_cloud_calls", t.calls)
		f.Add("api_writes_per_transition", t.writes)
		f.Add("cloud_calls_per_transition", t.calls)
		r.saw("%s: %.2f s after the last machine's change, %.0f API writes, %.0f cloud calls", way.want, t.overhead, t.writes, t.calls)
	}
	return nil
}

// measure asks for a power state and counts what Torpor did until it was reported. Events are written a little later,
// so the writes are counted after a pause; the cloud calls of that pause are not.
func (r *run) measure(name, want string) (transition, error) {
	writes, err := r.managerWrites()
	if err != nil {
		return transition{}, err
	}
	calls, err := r.cloudCalls()
	if err != nil {
		return transition{}, err
	}
	if _, err := r.kubectl("patch", "cd", name, "--type=merge", "-p", "spec:\n powerState: "+want); err != nil {
		return transition{}, err
	}
	reported, err := r.awaitReport(name, want)
	if err != nil {
		return transition{}, err
	}
	callsAfter, err := r.cloudCalls()
	if err != nil {
		return transition{}, err
	}
	changed, err := r.lastChange(name)
	if err != nil {
		return transition{}, err
	}
	if err := pause(r.ctx, settleTime); err != nil {
		return transition{}, err
	}
	writesAfter, err := r.managerWrites()
	return transition{overhead: reported.Sub(changed).Seconds(), writes: writesAfter - writes, calls: callsAfter - calls}, err
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
