// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional"
)

// lastDeletions is the number of objects that exist when their CRD is deleted. deletionTime is the time that a
// controller takes to clean up after one object.
const (
	lastDeletions = 100
	deletionTime  = 10 * time.Millisecond
)

// deletionCounter sets up a controller that cleans up after objects without using finalizers.
type deletionCounter struct{ seen, cleaned atomic.Int64 }

func (d *deletionCounter) setUp(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("bench-deletions").For(newObject(benchKind(0), "")).
		Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			err := mgr.GetClient().Get(ctx, req.NamespacedName, newObject(benchKind(0), ""))
			switch {
			case err == nil:
				d.seen.Add(1)
			case k8serrors.IsNotFound(err):
				pause(ctx, deletionTime)
				if ctx.Err() == nil {
					d.cleaned.Add(1)
				}
			}
			return reconcile.Result{}, nil
		}))
}

// countLost deletes a CRD with its objects, and returns the number of deletions that were not reconciled when done has
// returned.
func (d *deletionCounter) countLost(ctx context.Context, e *trialEnv, done func(context.Context)) float64 {
	for i := range lastDeletions {
		e.admin.createObject(ctx, benchKind(0), fmt.Sprintf("object-%d", i))
	}
	poll := func(what string, holds func() bool) {
		check(wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, waitTimeout, true, func(context.Context) (bool, error) { return holds(), nil }), what)
	}
	poll("wait until all objects were seen", func() bool { return d.seen.Load() >= lastDeletions })
	e.admin.uninstallCRD(ctx, benchKind(0))
	done(ctx)
	return float64(lastDeletions - d.cleaned.Load())
}

func measureDeletions(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	d, r := &deletionCounter{}, roundFigures{}
	e.admin.installCRD(ctx, benchKind(0))
	g := setUpGroup(mgr, "deletions", conditional.Served(benchKind(0)), d.setUp)
	withManager(ctx, mgr, func(ctx context.Context) {
		r["deletions_lost"] = d.countLost(ctx, e, func(ctx context.Context) { waitForPhase(ctx, conditional.Dormant, g) })
	})
	return r
}

// measurePlainDeletions waits three times as long as the work takes, because a plain controller is never stopped.
func measurePlainDeletions(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	d, r := &deletionCounter{}, roundFigures{}
	e.admin.installCRD(ctx, benchKind(0))
	e.admin.waitUntilServed(ctx, benchKind(0))
	check(d.setUp(mgr), "set up a plain controller")
	withManager(ctx, mgr, func(ctx context.Context) {
		r["plain_deletions_lost"] = d.countLost(ctx, e, func(ctx context.Context) { pause(ctx, 3*lastDeletions*deletionTime+time.Second) })
	})
	return r
}

// measureRuntime adds and removes groups while the manager runs.
func measureRuntime(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	kind, r := benchKind(0), roundFigures{}
	e.prepareKind(ctx, kind)
	setups := make([]float64, 0, e.Cycles)
	withManager(ctx, mgr, func(ctx context.Context) {
		e.measureCycles(ctx, e.Cycles, r, "runtime_", func(ctx context.Context, counts bool) {
			synced, start := make(syncTimes, 1), time.Now()
			g := setUpGroup(mgr, "runtime/"+kind.Kind, conditional.Served(kind), watchKind(kind, synced))
			if at := synced.next(ctx); counts {
				setups = append(setups, secondsBetween(start, at))
			}
			check(g.Remove(ctx), "remove a group")
		})
	})
	r.addSpread("runtime_setup", setups)
	return r
}

// slowCondition is a condition that delays each report by four seconds.
type slowCondition struct{ conditional.Condition }

func (c slowCondition) Observe(ctx context.Context, src conditional.Sources, report func(conditional.Status)) error {
	return c.Condition.Observe(ctx, src, func(s conditional.Status) { pause(ctx, 4*time.Second); report(s) })
}

// measureSlow restarts a group while the condition of another group delays each of its reports by four seconds.
func measureSlow(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	r := roundFigures{}
	e.prepareKind(ctx, benchKind(0))
	setUpGroup(mgr, "slow", slowCondition{conditional.Served(benchKind(1))}, func(manager.Manager) error { return nil })
	s := newSignalledGroup(mgr, "beside", benchKind(0), e.Cycles)
	withManager(ctx, mgr, func(ctx context.Context) { e.measureCycles(ctx, e.Cycles, r, "slow_", s.startAndStop) })
	r.addSpread("slow_start", s.starts)
	return r
}

// measureProviders installs as many CRDs as several crossplane providers contain.
func measureProviders(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	e.Storm = e.Providers
	return renamed(measureStorm(ctx, e, mgr), "providers_")
}

func measurePlainProviders(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	e.PlainStorm = e.Providers
	return renamed(measurePlainStorm(ctx, e, mgr), "providers_")
}

func renamed(r roundFigures, prefix string) roundFigures {
	to := roundFigures{}
	for name, value := range r {
		to[prefix+name] = value
	}
	return to
}
