// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/extra"
)

// plainSuffix is the suffix of the names of trials of plain controller-runtime.
const plainSuffix = "-plain"

// benchTrial is one measurement. Its run function receives a manager, which it has to start, and panics with a
// trialError.
type benchTrial struct {
	name         string
	measuresTime bool
	run          func(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures
}

// allTrials returns the trials in order.
func allTrials() []benchTrial {
	return []benchTrial{
		{name: "installs", run: measureInstalls},
		{name: "installs" + plainSuffix, run: measurePlainInstalls},
		{name: "restarts", run: measureRestarts},
		{name: "restarts" + plainSuffix, run: measurePlainRestarts},
		{name: "shared", run: measureShared},
		{name: "shared" + plainSuffix, run: measurePlainShared},
		{name: "storm", run: measureStorm},
		{name: "storm" + plainSuffix, run: measurePlainStorm},
		{name: "deletions", run: measureDeletions},
		{name: "deletions" + plainSuffix, run: measurePlainDeletions},
		{name: "runtime", run: measureRuntime},
		{name: "slow", run: measureSlow},
		{name: "providers", run: measureProviders},
		{name: "providers" + plainSuffix, run: measurePlainProviders},
		{name: "dormant", run: measureDormant, measuresTime: true},
		{name: "dormant" + plainSuffix, run: measurePlainDormant, measuresTime: true},
	}
}

// trialError ends a trial with a panic, because a measurement is useless after its first error.
type trialError struct{ error }

func check(err error, what string) {
	if err != nil {
		panic(trialError{fmt.Errorf("%s: %w", what, err)})
	}
}

// catchError calls do and returns the trialError with which it panicked.
func catchError(do func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			failure, ok := p.(trialError)
			if !ok {
				panic(p)
			}
			err = failure.error
		}
	}()
	do()
	return nil
}

// trialEnv is the environment of every trial.
type trialEnv struct {
	trialSizes

	cfg     *rest.Config // config of the measured process
	counter *requestCounter
	log     logr.Logger
	admin   adminClient
	before  memoryUsage // usage before the trial's manager was created
	isPlain bool
	making  sync.Mutex // locked while an object of the traffic is created and deleted
}

func runTrial(ctx context.Context, job trialJob) (r roundFigures, err error) {
	i := slices.IndexFunc(allTrials(), func(t benchTrial) bool { return t.name == job.Trial })
	if i < 0 {
		return nil, fmt.Errorf("expected a trial of this program, found %q: rebuild the program", job.Trial)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(job.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the job: %w", err)
	}
	return r, catchError(func() {
		counter := &requestCounter{}
		e := &trialEnv{trialSizes: job.Sizes, cfg: counter.configFor(cfg), counter: counter, log: counter.newLogger(), admin: newAdminClient(cfg), isPlain: strings.HasSuffix(job.Trial, plainSuffix)}
		ctrllog.SetLogger(e.log)
		e.before = settledUsage(ctx)
		r = allTrials()[i].run(ctx, e, e.newManager())
	})
}

// newManager returns a manager without servers. For a plain trial it is controller-runtime's own.
func (e *trialEnv) newManager() manager.Manager {
	o := ctrl.Options{
		Scheme: runtime.NewScheme(), Metrics: server.Options{BindAddress: "0"}, Logger: e.log,
		Controller: config.Controller{SkipNameValidation: new(true)},
	}
	mgr, err := conditional.NewManager(e.cfg, o)
	if e.isPlain {
		mgr, err = ctrl.NewManager(e.cfg, o)
	}
	check(err, "create a manager")
	return mgr
}

// withManager calls do while the manager is running.
func withManager(ctx context.Context, mgr manager.Manager, do func(context.Context)) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := mgr.Start(ctx)
		cancel(fmt.Errorf("the manager has ended: %w", err))
		ended <- err
	}()
	var err error
	select {
	case <-mgr.Elected():
		err = catchError(func() { do(ctx) })
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	cancel(nil)
	check(errors.Join(err, <-ended), "with a manager")
}

// setUpGroup adds a group without a restart limit.
func setUpGroup(mgr manager.Manager, name string, when conditional.Condition, setup conditional.SetupFunc) *conditional.Group {
	g, err := conditional.Setup(mgr, when, setup, conditional.Name(name), conditional.RestartLimit(1<<30, wait.Backoff{Duration: time.Second}))
	check(err, "set up a group")
	return g
}

// setUpGroups adds a group for each of n kinds, starting with kind number first.
func setUpGroups(mgr manager.Manager, first, n int, synced syncTimes) (groups []*conditional.Group) {
	for i := range n {
		kind := benchKind(first + i)
		groups = append(groups, setUpGroup(mgr, kind.Kind, conditional.Served(kind), watchKind(kind, synced)))
	}
	return groups
}

func waitForPhase(ctx context.Context, phase conditional.Phase, groups ...*conditional.Group) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for _, g := range groups {
		check(g.Wait(ctx, phase), fmt.Sprintf("wait for the phase %s of a group with status %+v", phase, g.Status()))
	}
}

// waitForAbsence waits until every group has detected that its kind is not served.
func waitForAbsence(ctx context.Context, groups ...*conditional.Group) {
	for _, g := range groups {
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, waitTimeout, true, func(context.Context) (bool, error) {
			return g.Status().Condition.State == conditional.False, nil
		})
		check(err, fmt.Sprintf("wait for the absence of a kind, of a group with status %+v", g.Status()))
	}
}

// secondsBetween returns the seconds between two times. It never returns a negative number, because two watches may
// deliver one event in either order.
func secondsBetween(from, to time.Time) float64 { return max(to.Sub(from).Seconds(), 0) }

// measureInstalls creates and deletes a CRD repeatedly. It measures from a watch's Established event to the sync of the
// group's sources, and from a watch's deletion event to the phase Dormant of the group.
func measureInstalls(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	kind, synced := benchKind(0), make(syncTimes, 10)
	group := setUpGroup(mgr, "installs", conditional.Served(kind), watchKind(kind, synced))
	var starts, stops []float64
	withManager(ctx, mgr, func(ctx context.Context) {
		history := e.admin.watchCRDs(ctx)
		waitForAbsence(ctx, group)
		for range e.Installs {
			synced.clear()
			e.admin.installCRD(ctx, kind)
			established := history.waitFor(ctx, history.established, kind)
			starts = append(starts, secondsBetween(established, synced.next(ctx)))
			waitForPhase(ctx, conditional.Running, group)
			e.admin.uninstallCRD(ctx, kind)
			waitForPhase(ctx, conditional.Dormant, group)
			dormant := time.Now()
			stops = append(stops, secondsBetween(history.waitFor(ctx, history.gone, kind), dormant))
		}
	})
	r := roundFigures{"installs": float64(len(starts))}
	r.addSpread("established_to_synced", starts)
	r.addSpread("gone_to_stopped", stops)
	return r
}

// measurePlainInstalls starts a plain controller as soon as discovery lists the kind. This avoids the pause of 10 s
// after a premature start.
func measurePlainInstalls(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	kind := benchKind(0)
	var starts []float64
	withManager(ctx, mgr, func(ctx context.Context) {
		history := e.admin.watchCRDs(ctx)
		for range e.PlainInstalls {
			e.admin.installCRD(ctx, kind)
			established := history.waitFor(ctx, history.established, kind)
			e.admin.waitUntilServed(ctx, kind)
			starts = append(starts, secondsBetween(established, runPlainOnce(ctx, mgr, kind)))
			e.admin.uninstallCRD(ctx, kind)
			history.waitFor(ctx, history.gone, kind)
		}
	})
	r := roundFigures{"plain_installs": float64(len(starts))}
	r.addSpread("plain_established_to_synced", starts)
	return r
}

// prepareKind installs a CRD with ten objects.
func (e *trialEnv) prepareKind(ctx context.Context, kind schema.GroupVersionKind) {
	const objects = 10
	e.admin.installCRD(ctx, kind)
	for i := range objects {
		e.admin.createObject(ctx, kind, fmt.Sprintf("object-%d", i))
	}
}

// measureCycles performs n cycles after several warm-up cycles, and adds the growth over the n cycles.
func (e *trialEnv) measureCycles(ctx context.Context, n int, r roundFigures, prefix string, do func(ctx context.Context, counts bool)) {
	warmup, leaks := max(n/20, 2), &leakSamples{}
	takeSample := func(cycle int) {
		e.making.Lock() // An object that is being created would be counted as a leak.
		defer e.making.Unlock()
		leaks.takeSample(ctx, cycle)
	}
	for i := range warmup + n {
		cycle := i - warmup
		if cycle >= 0 && cycle%max(n/20, 1) == 0 {
			takeSample(cycle)
		}
		do(ctx, cycle >= 0)
	}
	takeSample(n)
	leaks.addTo(r, prefix)
}

// signalledGroup is a group with a Signal condition, and with the durations of its starts and stops.
type signalledGroup struct {
	group         *conditional.Group
	signal        chan bool
	synced        syncTimes
	starts, stops []float64
}

// newSignalledGroup allocates memory for all samples in advance, so they do not look like a leak.
func newSignalledGroup(mgr manager.Manager, name string, kind schema.GroupVersionKind, samples int) *signalledGroup {
	s := &signalledGroup{signal: make(chan bool), synced: make(syncTimes, 10), starts: make([]float64, 0, samples), stops: make([]float64, 0, samples)}
	s.group = setUpGroup(mgr, name, extra.Signal(name, s.signal), watchKind(kind, s.synced))
	return s
}

// startAndStop starts the group and waits until its sources have synced. Then it stops the group and waits until it is
// dormant.
func (s *signalledGroup) startAndStop(ctx context.Context, counts bool) {
	s.synced.clear()
	start := time.Now()
	s.send(ctx, true)
	synced := s.synced.next(ctx)
	waitForPhase(ctx, conditional.Running, s.group)
	stop := time.Now()
	s.send(ctx, false)
	waitForPhase(ctx, conditional.Dormant, s.group)
	if counts {
		s.starts = append(s.starts, secondsBetween(start, synced))
		s.stops = append(s.stops, time.Since(stop).Seconds())
	}
}

func (s *signalledGroup) send(ctx context.Context, on bool) {
	select {
	case s.signal <- on:
	case <-ctx.Done():
		check(context.Cause(ctx), "send a signal")
	}
}

// measureRestarts starts and stops a group for a kind that is always served and has no other watchers.
func measureRestarts(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	kind, r := benchKind(0), roundFigures{}
	e.prepareKind(ctx, kind)
	s := newSignalledGroup(mgr, "restarts", kind, e.Cycles)
	withManager(ctx, mgr, func(ctx context.Context) { e.measureCycles(ctx, e.Cycles, r, "", s.startAndStop) })
	r.addSpread("served_start", s.starts)
	r.addSpread("served_stop", s.stops)
	return r
}

// measurePlainRestarts creates a new plain controller for each start, and removes its informer at each stop.
func measurePlainRestarts(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	kind, r := benchKind(0), roundFigures{}
	e.prepareKind(ctx, kind)
	starts := make([]float64, 0, e.PlainCycles)
	withManager(ctx, mgr, func(ctx context.Context) {
		e.measureCycles(ctx, e.PlainCycles, r, "plain_", func(ctx context.Context, counts bool) {
			start := time.Now()
			if synced := runPlainOnce(ctx, mgr, kind); counts {
				starts = append(starts, secondsBetween(start, synced))
			}
		})
	})
	r.addSpread("plain_served_start", starts)
	return r
}

// measureShared starts and stops a group for a kind that another group always watches, and counts the events and the
// restarts of the other group.
func measureShared(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	kind, r := benchKind(0), roundFigures{}
	e.prepareKind(ctx, kind)
	traffic := &eventTraffic{env: e, kind: kind, missing: map[string]bool{}}
	var starts atomic.Int32
	neighbour := setUpGroup(mgr, "neighbour", conditional.Served(kind), func(mgr manager.Manager) error {
		starts.Add(1)
		return ctrl.NewControllerManagedBy(mgr).Named("bench-neighbour").WatchesRawSource(traffic.newSource(mgr)).Complete(idleReconciler())
	})
	s := newSignalledGroup(mgr, "shared", kind, e.Cycles)
	withManager(ctx, mgr, func(ctx context.Context) {
		waitForPhase(ctx, conditional.Running, neighbour)
		traffic.makeWhile(ctx, func() { e.measureCycles(ctx, e.Cycles, r, "shared_", s.startAndStop) })
		r["shared_lost_events"], r["shared_neighbour_events"] = traffic.countLost(ctx)
	})
	r["shared_neighbour_restarts"] = float64(starts.Load() - 1)
	r.addSpread("shared_start", s.starts)
	return r
}

// measurePlainShared stops a plain controller whose informer must remain, because another controller uses it.
func measurePlainShared(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	kind, r := benchKind(0), roundFigures{}
	e.prepareKind(ctx, kind)
	withManager(ctx, mgr, func(ctx context.Context) {
		_, stopNeighbour := startPlainSynced(ctx, mgr, "bench-neighbour", kind)
		e.measureCycles(ctx, e.PlainCycles, r, "plain_shared_", func(ctx context.Context, _ bool) {
			_, stop := startPlainSynced(ctx, mgr, "bench-plain", kind)
			stop()
		})
		stopNeighbour()
	})
	return r
}

// eventTraffic creates events continuously, and records the events that its source has not received yet.
type eventTraffic struct {
	env  *trialEnv
	kind schema.GroupVersionKind

	mu      sync.Mutex
	missing map[string]bool // one entry per event type and object
	made    int
}

// trafficPause is the pause between two objects.
const trafficPause = 20 * time.Millisecond

// makeWhile creates and deletes objects while do is running.
func (t *eventTraffic) makeWhile(ctx context.Context, do func()) {
	var isDone atomic.Bool
	var maker errgroup.Group
	maker.Go(func() error {
		return catchError(func() {
			for i := 0; !isDone.Load(); i++ {
				t.makeObject(ctx, fmt.Sprintf("traffic-%d", i))
				pause(ctx, trafficPause)
			}
		})
	})
	err := catchError(do)
	isDone.Store(true)
	check(errors.Join(err, maker.Wait()), "with traffic")
}

func (t *eventTraffic) makeObject(ctx context.Context, name string) {
	t.env.making.Lock()
	defer t.env.making.Unlock()
	t.expectEvent("created " + name)
	t.env.admin.createObject(ctx, t.kind, name)
	t.expectEvent("deleted " + name)
	t.env.admin.deleteObject(ctx, t.kind, name)
}

func (t *eventTraffic) expectEvent(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missing[what] = true
	t.made++
}

func (t *eventTraffic) noteEvent(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.missing, what)
}

// newSource returns a source that records all events of the kind.
func (t *eventTraffic) newSource(mgr manager.Manager) source.Source {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return source.Kind(mgr.GetCache(), newObject(t.kind, ""), handler.TypedFuncs[*unstructured.Unstructured, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*unstructured.Unstructured], _ queue) {
			t.noteEvent("created " + e.Object.GetName())
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*unstructured.Unstructured], _ queue) {
			t.noteEvent("deleted " + e.Object.GetName())
		},
	})
}

// countLost returns the number of events that were not received within 10 s, and the number of events that were
// created.
func (t *eventTraffic) countLost(ctx context.Context) (lost, made float64) {
	// The error only means that some events are lost, which the result shows.
	_ = wait.PollUntilContextTimeout(ctx, trafficPause, 10*time.Second, true, func(context.Context) (bool, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		lost, made = float64(len(t.missing)), float64(t.made)
		return lost == 0, nil
	})
	return lost, made
}

// measureStorm installs the CRDs of many groups at the same time.
func measureStorm(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	r, synced := roundFigures{}, make(syncTimes, 2*e.Storm)
	groups := setUpGroups(mgr, 0, e.Storm, synced)
	withManager(ctx, mgr, func(ctx context.Context) {
		waitForAbsence(ctx, groups...)
		e.installStorm(ctx, e.admin.watchCRDs(ctx), e.Storm, synced, r)
		waitForPhase(ctx, conditional.Running, groups...)
		r.addUsage(ctx, e.before, e.Storm, "storm_%s_per_running_group")
	})
	return r
}

// measurePlainStorm starts each plain controller as soon as discovery lists its kind.
func measurePlainStorm(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	installed, r := roundFigures{}, roundFigures{}
	withManager(ctx, mgr, func(ctx context.Context) {
		history, synced := e.admin.watchCRDs(ctx), make(syncTimes, e.PlainStorm)
		var starts errgroup.Group
		for i := range e.PlainStorm {
			starts.Go(func() error {
				return catchError(func() {
					kind := benchKind(i)
					history.waitFor(ctx, history.established, kind)
					e.admin.waitUntilServed(ctx, kind)
					startPlain(ctx, mgr, "bench-"+kind.Kind, newNotingSource(mgr, kind, synced))
				})
			})
		}
		e.installStorm(ctx, history, e.PlainStorm, synced, installed)
		check(starts.Wait(), "start plain controllers")
		r.addUsage(ctx, e.before, e.PlainStorm, "plain_storm_%s_per_running_group")
	})
	for name, value := range installed {
		r["plain_"+name] = value
	}
	return r
}

// installStorm installs n CRDs, 16 at a time, and records the time from the last Established event until the last
// source has synced.
func (e *trialEnv) installStorm(ctx context.Context, history *crdHistory, n int, synced syncTimes, r roundFigures) {
	start := time.Now()
	var installs errgroup.Group
	installs.SetLimit(16)
	for i := range n {
		installs.Go(func() error { return catchError(func() { e.admin.installCRD(ctx, benchKind(i)) }) })
	}
	check(installs.Wait(), "install CRDs")
	established, last := start, start
	for i := range n {
		established = laterOf(established, history.waitFor(ctx, history.established, benchKind(i)))
	}
	for range n {
		last = laterOf(last, synced.next(ctx))
	}
	r[fmt.Sprintf("storm_%d_established_seconds", n)] = secondsBetween(start, established)
	r[fmt.Sprintf("storm_%d_synced_seconds", n)] = secondsBetween(established, last)
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// measureDormant measures the additional cost of groups whose kinds are always absent, compared to a manager without
// groups. Then it adds ten times as many groups, so that shared memory and the rest of the process are negligible in
// the memory per group.
func measureDormant(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	withManager(ctx, e.newManager(), func(ctx context.Context) { e.before = settledUsage(ctx) })
	more := 10 * e.DormantKinds
	groups := setUpGroups(mgr, 0, e.DormantKinds, make(syncTimes, e.DormantKinds))
	r := roundFigures{"dormant_kinds": float64(e.DormantKinds)}
	withManager(ctx, mgr, func(ctx context.Context) {
		waitForAbsence(ctx, groups...)
		r.addUsage(ctx, e.before, 1, "%s_of_all_dormant_groups")
		r["dormant_goroutines"] = r["goroutines_of_all_dormant_groups"]
		e.measureIdle(ctx, e.DormantTime, r, "")
		before := settledUsage(ctx)
		waitForAbsence(ctx, setUpGroups(mgr, e.DormantKinds, more, make(syncTimes, more))...)
		r.addUsage(ctx, before, more, "%s_per_dormant_group")
	})
	return r
}

// measurePlainDormant makes plain controllers wait for the same kinds. They wait for up to a day. With the default
// CacheSyncTimeout, the manager would stop after two minutes.
func measurePlainDormant(ctx context.Context, e *trialEnv, mgr manager.Manager) roundFigures {
	r := roundFigures{}
	withManager(ctx, mgr, func(ctx context.Context) {
		for i := range e.DormantKinds {
			kind := benchKind(i)
			startPlain(ctx, mgr, "bench-"+kind.Kind, newNotingSource(mgr, kind, make(syncTimes, 1)))
		}
		settledUsage(ctx) // Only waits until all controllers have started.
		e.measureIdle(ctx, e.PlainDormantTime, r, "plain_")
	})
	return r
}

// measureIdle counts the activity of the process during the given time.
func (e *trialEnv) measureIdle(ctx context.Context, span time.Duration, r roundFigures, prefix string) {
	requests, watches, errorLogs := e.counter.requests.Load(), e.counter.watches.Load(), e.counter.errors.Load()
	start, cpu := time.Now(), usedCPU()
	for left := span; left > 0; left = span - time.Since(start) {
		pause(ctx, min(left, 20*time.Second)) // Waking up every 20 s has no noticeable effect on the CPU time.
	}
	minutes := time.Since(start).Minutes()
	r[prefix+"dormant_minutes"] = minutes
	r[prefix+"dormant_requests_per_minute"] = float64(e.counter.requests.Load()-requests) / minutes
	r[prefix+"dormant_watch_requests_per_minute"] = float64(e.counter.watches.Load()-watches) / minutes
	r[prefix+"dormant_error_logs"] = float64(e.counter.errors.Load() - errorLogs)
	r[prefix+"dormant_cpu_milliseconds_per_minute"] = float64((usedCPU() - cpu).Microseconds()) / 1000 / minutes
}

// syncTimes receives the moment of every sync.
type syncTimes chan time.Time

// clear discards the times of earlier syncs.
func (s syncTimes) clear() {
	for len(s) > 0 {
		<-s
	}
}

// next waits for a sync.
func (s syncTimes) next(ctx context.Context) (at time.Time) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	select {
	case at = <-s:
	case <-ctx.Done():
		check(context.Cause(ctx), "wait until the sources have synced")
	}
	return at
}

// notingSource records the time of its sync. Conditional and plain controllers use the same type.
type notingSource struct {
	source.SyncingSource
	synced syncTimes
}

func newNotingSource(mgr manager.Manager, kind schema.GroupVersionKind, synced syncTimes) notingSource {
	h := handler.TypedEnqueueRequestForObject[*unstructured.Unstructured]{}
	return notingSource{SyncingSource: source.Kind(mgr.GetCache(), newObject(kind, ""), &h), synced: synced}
}

// WaitForSync records the time at which the source has synced.
func (s notingSource) WaitForSync(ctx context.Context) error {
	err := s.SyncingSource.WaitForSync(ctx)
	if err == nil && ctx.Err() == nil {
		s.synced <- time.Now()
	}
	return err
}

func idleReconciler() reconcile.Reconciler {
	return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
}

// watchKind returns a setup function for a controller whose only source is a notingSource. It uses controller-runtime's
// builder.
func watchKind(kind schema.GroupVersionKind, synced syncTimes) conditional.SetupFunc {
	return func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).Named("bench-" + kind.Kind).WatchesRawSource(newNotingSource(mgr, kind, synced)).Complete(idleReconciler())
	}
}

// startPlain starts a controller while the manager is running, as controller-runtime's authors recommend for late
// starts. stop stops the controller. The caller must remove its informer.
func startPlain(ctx context.Context, mgr manager.Manager, name string, s notingSource) (stop func()) {
	c, err := controller.NewUnmanaged(name, controller.Options{
		Reconciler: idleReconciler(), SkipNameValidation: new(true), Logger: mgr.GetLogger(), CacheSyncTimeout: 24 * time.Hour,
	})
	check(err, "create a plain controller")
	check(c.Watch(s), "let a plain controller watch")
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			check(err, "stop a plain controller")
		}
	}
}

// startPlainSynced is startPlain for a kind. It returns when the source has synced.
func startPlainSynced(ctx context.Context, mgr manager.Manager, name string, kind schema.GroupVersionKind) (at time.Time, stop func()) {
	synced := make(syncTimes, 1)
	stop = startPlain(ctx, mgr, name, newNotingSource(mgr, kind, synced))
	return synced.next(ctx), stop
}

// runPlainOnce starts a plain controller and, as soon as it has synced, stops it together with its informer.
func runPlainOnce(ctx context.Context, mgr manager.Manager, kind schema.GroupVersionKind) time.Time {
	at, stop := startPlainSynced(ctx, mgr, "bench-plain", kind)
	stop()
	check(mgr.GetCache().RemoveInformer(ctx, newObject(kind, "")), "remove an informer")
	return at
}
