// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// minLookInterval is the least from one look at an account to the next.
	minLookInterval = time.Second
	// callInterval is what each call of a look adds to that: half of what EC2 gives back is left to others.
	callInterval = 100 * time.Millisecond
	// clusterInterval is what each cluster of a look adds, up to maxFleetInterval: who waits for one cluster is told within a second, and a
	// fleet is not looked at twice as often for that.
	clusterInterval, maxFleetInterval = 20 * time.Millisecond, 2 * time.Second
	// machinesPerCall and clustersPerCall estimate how many calls a look takes.
	machinesPerCall, clustersPerCall = 500, 200
	// sharedLookAge is how old a look at a settled cluster is before it is renewed together with others.
	sharedLookAge = 5 * time.Minute
	// SettledLookAge is how old a look may be that a settled cluster is compared by. One that is off has its turn instead.
	SettledLookAge = sharedLookAge + time.Minute
	// turnInterval is how often clusters that are off have their turn, as many as one call shows: what nobody waits for costs an account
	// one call a minute, however many they are.
	turnInterval = time.Minute
	// maxLook is how many clusters one look is for; those that are waited for come first.
	maxLook = 2_000
	// maxOrders is how many clusters are ordered about together, and maxOrderMachines how many machines they have unless one cluster
	// has more.
	maxOrders, maxOrderMachines = 1_000, 3_600
	// machinesPerOrderCall and orderCallInterval are for StartInstances, which EC2 limits most, and which stops try before they leave: it
	// takes five calls at once and two in a second.
	machinesPerOrderCall, orderCallInterval = 900, 500 * time.Millisecond
	// lookTimeout and orderTimeout bound all calls of a look, and of an order.
	lookTimeout, orderTimeout = time.Minute, 2 * time.Minute
	// minThrottlePause and maxThrottlePause bound the pause after a throttled call.
	minThrottlePause, maxThrottlePause = time.Second, 30 * time.Second
	// maxAskedPause is the longest pause that a cloud may ask for.
	maxAskedPause = 10 * time.Minute
	// jitter is the share by which an interval may be longer.
	jitter = 0.1
	// idleInterval is how often the schedule is looked at without a reason.
	idleInterval = time.Minute
)

// account is one identity at a cloud, with its own pace: nothing of it waits for another account.
type account struct {
	key      string
	batch    actuator.BatchActuator
	clusters map[types.NamespacedName]*cluster
	wanted   map[types.NamespacedName]demand
	// isLooking is set while its machines are looked at, and isOrdering while orders of a verb are given.
	isLooking  bool
	isOrdering map[Verb]bool
	pending    map[types.NamespacedName]*order
	// No look begins before nextLook, and no order is sent before nextOrder.
	nextLook, nextOrder time.Time
	// nextOffLook is when clusters that are off are looked at next.
	nextOffLook time.Time
	// pause is how long the account rests after the next throttled call; zero while it is not throttled.
	pause time.Duration
}

func newAccount(key string, batch actuator.BatchActuator, now time.Time) *account {
	return &account{
		key: key, batch: batch, nextOffLook: now.Add(turnInterval), clusters: map[types.NamespacedName]*cluster{}, wanted: map[types.NamespacedName]demand{},
		isOrdering: map[Verb]bool{}, pending: map[types.NamespacedName]*order{},
	}
}

// demand is that a cluster is to be looked at.
type demand struct {
	due time.Time
	// interval is when to look again if nothing has changed; zero is never.
	interval time.Duration
	// isAwaited says that a pass returned reconcile.ErrPending, and is run again when the look is done.
	isAwaited bool
}

// compareUrgency puts what a pass waits for first.
func (d demand) compareUrgency(other demand) int {
	if d.isAwaited != other.isAwaited {
		if d.isAwaited {
			return -1
		}
		return 1
	}
	return d.due.Compare(other.due)
}

// want joins two demands: the earlier one says when, so that passes in a hurry do not put a look off.
func (a *account) want(name types.NamespacedName, d demand) {
	if old, ok := a.wanted[name]; ok {
		d.isAwaited = d.isAwaited || old.isAwaited
		d.interval = cmp.Or(d.interval, old.interval)
		d.due = earlier(d.due, old.due)
	}
	a.wanted[name] = d
}

// Start implements manager.Runnable. It returns when ctx ends, with all that it has started.
func (s *Service) Start(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		jobs, next := s.takeJobs()
		for _, job := range jobs {
			work.Go(func() { job(ctx) })
		}
		timer.Reset(next)
	}
}

// takeJobs returns what is due, and when something will be. An account has at most one look and one order of a verb at a time.
func (s *Service) takeJobs() ([]func(context.Context), time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Clock.Now()
	var jobs []func(context.Context)
	next := now.Add(idleInterval)
	for _, a := range s.accounts {
		a.queueOffClusters(now)
		next = earlier(next, a.nextOffLook)
		if at, ok := a.lookTime(); ok && at.After(now) {
			next = earlier(next, at)
		} else if ok {
			names := a.listDue(now)
			a.isLooking = true
			jobs = append(jobs, func(ctx context.Context) { s.lookAt(ctx, a, names) })
		}
		for _, verb := range []Verb{StopVerb, TerminateVerb, StartVerb} {
			if at, ok := a.orderTime(verb); ok && at.After(now) {
				next = earlier(next, at)
			} else if ok {
				batch := a.takeOrders(verb)
				a.isOrdering[verb] = true
				jobs = append(jobs, func(ctx context.Context) { s.sendOrders(ctx, a, verb, batch) })
			}
		}
	}
	s.nextRun = next
	return jobs, next.Sub(now)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// lookTime returns when the account is looked at next; false while it is, or if nobody wants it.
func (a *account) lookTime() (time.Time, bool) {
	var first time.Time
	for _, d := range a.wanted {
		if first.IsZero() || d.due.Before(first) {
			first = d.due
		}
	}
	return later(first, a.nextLook), len(a.wanted) > 0 && !a.isLooking
}

// lookTimeOf returns when a demand is met at the earliest; false while the account is looked at, after which all demands are.
func (a *account) lookTimeOf(d demand) (time.Time, bool) {
	return later(d.due, a.nextLook), !a.isLooking
}

// listDue returns the clusters that are due: first those that somebody waits for, then those that are due for longest, then settled ones whose
// turn comes anyway.
func (a *account) listDue(now time.Time) []types.NamespacedName {
	var names, companions []types.NamespacedName
	isDrift := true
	for name, d := range a.wanted {
		// What is due in a moment goes along.
		if !d.due.After(now.Add(minLookInterval / 2)) {
			names = append(names, name)
			isDrift = isDrift && !a.clusters[name].isOff() && a.clusters[name].isOlderThan(sharedLookAge, now)
		}
	}
	if isDrift {
		for name, c := range a.clusters {
			if _, isWanted := a.wanted[name]; !isWanted && !c.isOff() && c.isOlderThan(sharedLookAge, now) {
				companions = append(companions, name)
			}
		}
	}
	slices.SortFunc(names, func(x, y types.NamespacedName) int { return a.wanted[x].compareUrgency(a.wanted[y]) })
	names = append(names, companions...)
	return names[:min(len(names), maxLook)]
}

// queueOffClusters has clusters looked at that are off, if it is time: those first that have not been for longest.
func (a *account) queueOffClusters(now time.Time) {
	if now.Before(a.nextOffLook) {
		return
	}
	a.nextOffLook = now.Add(turnInterval)
	var off []*cluster
	for name, c := range a.clusters {
		if _, isWanted := a.wanted[name]; !isWanted && c.isOff() && c.isOlderThan(sharedLookAge, now) {
			off = append(off, c)
		}
	}
	slices.SortFunc(off, func(x, y *cluster) int { return x.snapshot.At.Compare(y.snapshot.At) })
	machines := 0
	for i, c := range off[:min(len(off), clustersPerCall)] {
		// The first one has its turn however many machines it has; it would hold up all others for good.
		if machines += len(c.snapshot.Machines); machines > machinesPerCall && i > 0 {
			return
		}
		a.want(c.Name, demand{due: now})
	}
}

// isOff reports whether all machines were stopped, and none was paid for, when they were looked at last.
func (c *cluster) isOff() bool {
	isOn := func(m actuator.Machine) bool { return m.State != actuator.Stopped || m.HoldsCapacity }
	return c.snapshot.Err == nil && len(c.snapshot.Machines) > 0 && !slices.ContainsFunc(c.snapshot.Machines, isOn)
}

func (c *cluster) isOlderThan(age time.Duration, now time.Time) bool {
	return now.Sub(c.snapshot.At) > age
}

// pace sets when the account is looked at next, by what the last look cost.
func (a *account) pace(began time.Time, clusters, machines int, err error) {
	calls := 1 + clusters/clustersPerCall + machines/machinesPerCall
	a.adjustPause(err)
	interval := max(minLookInterval, time.Duration(calls)*callInterval, min(time.Duration(clusters)*clusterInterval, maxFleetInterval))
	a.nextLook = began.Add(withJitter(interval + a.pause))
}

// adjustPause slows an account down that is throttled, and lets it recover.
func (a *account) adjustPause(err error) {
	if err != nil && actuator.ClassOf(err) == actuator.Throttled {
		a.pause = max(min(max(2*a.pause, minThrottlePause), maxThrottlePause), askedPause(err))
		return
	}
	// A long pause that was asked for is over after it.
	if a.pause = min(a.pause, maxThrottlePause) / 2; a.pause < minThrottlePause {
		a.pause = 0
	}
}

// askedPause returns for how long the cloud wants not to be asked again.
func askedPause(err error) time.Duration {
	if known, ok := errors.AsType[*actuator.Error](err); ok {
		return min(known.RetryAfter, maxAskedPause)
	}
	return 0
}

// withJitter keeps accounts that were throttled together from coming back together.
func withJitter(d time.Duration) time.Duration { return wait.Jitter(d, jitter) }
