// SPDX-License-Identifier: Apache-2.0

package cloudcalls

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/background"
)

const (
	// minLookInterval is the shortest interval between two polls of an account.
	minLookInterval = time.Second
	// callInterval is the minimum interval for each API call of a poll. It leaves half of EC2's refill rate to other
	// clients.
	callInterval = 100 * time.Millisecond
	// clusterInterval is the minimum interval for each cluster of a poll, up to maxFleetInterval in total. A single
	// cluster is therefore polled every second, and a large fleet less often.
	clusterInterval, maxFleetInterval = 20 * time.Millisecond, 2 * time.Second
	// machinesPerCall and clustersPerCall estimate the number of API calls of a poll.
	machinesPerCall, clustersPerCall = 500, 200
	// sharedLookAge is the age from which the result for a settled cluster is refreshed together with others.
	sharedLookAge = 5 * time.Minute
	// SettledLookAge is the maximum age of a result that a pass of a settled cluster uses. A cluster that is off is
	// polled in turns instead (see turnInterval).
	SettledLookAge = sharedLookAge + time.Minute
	// turnInterval is the interval between two turns, each of which polls some of the clusters that are off: as many as
	// fit into one API call. A small fleet therefore costs an account one call a minute. offRound is the time within
	// which all of them are polled. If one call a minute does not suffice, the fleet is polled in at least largeTurns
	// larger turns, because some clouds list a whole account in each turn.
	turnInterval, offRound, largeTurns = time.Minute, 12 * time.Minute, 4
	// maxLook is the maximum number of clusters in one poll. Clusters with a waiting pass come first. If all clusters
	// of the poll are settled, the number is maxDriftLook.
	maxLook, maxDriftLook = 2_000, 5_000
	// maxOrders is the maximum number of clusters in one order, and maxOrderMachines that of their machines, unless a
	// single cluster has more.
	maxOrders, maxOrderMachines = 1_000, 3_600
	// machinesPerOrderCall and orderCallInterval apply to StartInstances, the call that EC2 limits most. A stop first
	// calls it as a dry run. EC2 allows five calls at once and two per second.
	machinesPerOrderCall, orderCallInterval = 900, 500 * time.Millisecond
	// lookTimeout and orderTimeout limit all API calls of a poll and of an order.
	lookTimeout, orderTimeout = time.Minute, 2 * time.Minute
	// minThrottlePause and maxThrottlePause limit the pause after a throttled call.
	minThrottlePause, maxThrottlePause = time.Second, 30 * time.Second
	// maxAskedPause limits the pause that a cloud can request.
	maxAskedPause = 10 * time.Minute
	// jitter is the fraction by which an interval may be extended.
	jitter = 0.1
)

// An account has one task for each verb, and these two: lookTask polls clusters, and turnTask selects clusters that are
// off for the next poll.
const lookTask, turnTask = "look", "turn"

// task is a kind of call to an account. An account has at most one poll, and one order of each verb, in progress.
type task struct{ account, name string }

func tasks() []string {
	names := []string{lookTask, turnTask}
	for _, verb := range verbs() {
		names = append(names, string(verb))
	}
	return names
}

// account is one identity in a cloud. Accounts do not wait for each other.
type account struct {
	key      string
	batch    actuator.BatchActuator
	clusters map[types.NamespacedName]*cluster
	wanted   map[types.NamespacedName]demand
	pending  map[types.NamespacedName]*order
	// No poll begins before nextLook, and no order is sent before nextOrder.
	nextLook, nextOrder time.Time
	// nextOffLook is when clusters that are off are next polled.
	nextOffLook time.Time
	// pause is added to the interval before the next call; zero while the account is not throttled.
	pause time.Duration
}

func newAccount(key string, batch actuator.BatchActuator, now time.Time) *account {
	return &account{
		key: key, batch: batch, nextOffLook: now.Add(turnInterval), clusters: map[types.NamespacedName]*cluster{}, wanted: map[types.NamespacedName]demand{},
		pending: map[types.NamespacedName]*order{},
	}
}

// demand requests a poll of a cluster.
type demand struct {
	due time.Time
	// interval is the time until the next poll if nothing has changed; zero means no further poll.
	interval time.Duration
	// isAwaited is true if a pass returned reconcile.ErrPending and runs again when the poll is done.
	isAwaited bool
}

// compareUrgency orders demands. Those with a waiting pass come first.
func (d demand) compareUrgency(other demand) int {
	if d.isAwaited != other.isAwaited {
		if d.isAwaited {
			return -1
		}
		return 1
	}
	return d.due.Compare(other.due)
}

// want merges two demands. The earlier time applies, so frequent passes do not postpone a poll.
func (a *account) want(name types.NamespacedName, d demand) {
	if old, ok := a.wanted[name]; ok {
		d.isAwaited = d.isAwaited || old.isAwaited
		d.interval = cmp.Or(d.interval, old.interval)
		if old.due.Before(d.due) {
			d.due = old.due
		}
	}
	a.wanted[name] = d
}

// Start implements manager.Runnable. It returns when ctx and all goroutines that it started have ended.
func (s *Service) Start(ctx context.Context) error { return s.calls.Start(ctx) }

// take returns the due poll or the due orders of an account.
func (s *Service) take(t task, known **account, _ time.Time) background.Call {
	a, now := *known, s.Clock.Now()
	if t.name == turnTask {
		a.queueOffClusters(now)
		s.askAgain(a, lookTask)
		return background.Call{Again: a.nextOffLook}
	}
	if at := a.nextCall(t.name); at.IsZero() || at.After(now) {
		return background.Call{Again: at}
	}
	if t.name == lookTask {
		names := a.listDue(now)
		target, infraIDs := a.listInfraIDs(names)
		return background.Call{Timeout: lookTimeout, Do: func(ctx context.Context) func() { return s.lookAt(ctx, a, names, target, infraIDs) }}
	}
	verb := Verb(t.name)
	batch := a.takeOrders(verb)
	return background.Call{Timeout: orderTimeout, Do: func(ctx context.Context) func() { return s.sendOrders(ctx, a, verb, batch) }}
}

// askAgain schedules the next call of a task, if there is one.
func (s *Service) askAgain(a *account, name string) {
	if at := a.nextCall(name); !at.IsZero() {
		s.calls.Ask(task{a.key, name}, at)
	}
}

// nextCall returns the time of the next call of a task; zero if no call is due.
func (a *account) nextCall(name string) time.Time {
	var due []time.Time
	notBefore := a.nextOrder
	for _, o := range a.pending {
		if string(o.verb) == name {
			due = append(due, o.since.Add(gatherTime))
		}
	}
	if name == lookTask {
		notBefore = a.nextLook
		for _, d := range a.wanted {
			due = append(due, d.due)
		}
	}
	if len(due) == 0 {
		return time.Time{}
	}
	return later(slices.MinFunc(due, time.Time.Compare), notBefore)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// listDue returns the due clusters. Clusters with a waiting pass come first, then clusters that have been due for the
// longest time, then, if all of these are settled and on, other such clusters that would be due soon.
func (a *account) listDue(now time.Time) []types.NamespacedName {
	var names, companions []types.NamespacedName
	isSettled, isRunning := true, true
	for name, d := range a.wanted {
		// Demands that are due in a moment are included.
		if c := a.clusters[name]; !d.due.After(now.Add(minLookInterval / 2)) {
			names = append(names, name)
			isSettled = isSettled && c.isOlderThan(sharedLookAge, now) && !c.snapshot.At.IsZero()
			isRunning = isRunning && !c.isOff()
		}
	}
	if isSettled && isRunning {
		for name, c := range a.clusters {
			if _, isWanted := a.wanted[name]; !isWanted && !c.isOff() && c.isOlderThan(sharedLookAge, now) {
				companions = append(companions, name)
			}
		}
	}
	slices.SortFunc(names, func(x, y types.NamespacedName) int { return a.wanted[x].compareUrgency(a.wanted[y]) })
	names = append(names, companions...)
	if isSettled {
		return names[:min(len(names), maxDriftLook)]
	}
	return names[:min(len(names), maxLook)]
}

// queueOffClusters queues clusters that are off when their turn is due. The least recently polled clusters come first.
func (a *account) queueOffClusters(now time.Time) {
	if now.Before(a.nextOffLook) {
		return
	}
	off, due := a.listOffClusters(now)
	interval, calls := planTurn(off)
	a.nextOffLook = now.Add(interval)
	slices.SortFunc(due, func(x, y *cluster) int { return x.snapshot.At.Compare(y.snapshot.At) })
	machines := 0
	for i, c := range due[:min(len(due), calls*clustersPerCall, maxDriftLook)] {
		// The first cluster is included regardless of its size. Otherwise it would block all others permanently.
		if machines += len(c.snapshot.Machines); machines > calls*machinesPerCall && i > 0 {
			return
		}
		a.want(c.Name, demand{due: now})
	}
}

// offFleet is the number of clusters that are off, and the number of their machines.
type offFleet struct{ clusters, machines int }

// listOffClusters returns the size of the fleet that is off, and the clusters that may be polled in this turn.
func (a *account) listOffClusters(now time.Time) (offFleet, []*cluster) {
	var all offFleet
	var due []*cluster
	for name, c := range a.clusters {
		if !c.isOff() {
			continue
		}
		all.clusters, all.machines = all.clusters+1, all.machines+len(c.snapshot.Machines)
		if _, isWanted := a.wanted[name]; !isWanted && c.isOlderThan(sharedLookAge, now) {
			due = append(due, c)
		}
	}
	return all, due
}

// planTurn returns the time until the next turn, and the number of API calls of a turn.
func planTurn(off offFleet) (time.Duration, int) {
	calls := 1 + max(off.clusters/clustersPerCall, off.machines/machinesPerCall)
	if calls <= int(offRound/turnInterval) {
		return turnInterval, 1
	}
	turns := max(largeTurns, 1+off.clusters/maxDriftLook)
	return offRound / time.Duration(turns), 1 + calls/turns
}

// isOff reports whether the last poll found all machines stopped and none billed.
func (c *cluster) isOff() bool {
	isOn := func(m actuator.Machine) bool { return m.State != actuator.Stopped || m.HoldsCapacity }
	exists := len(c.snapshot.Machines)+len(c.snapshot.Groups) > 0
	return c.snapshot.Err == nil && exists && !slices.ContainsFunc(c.snapshot.Machines, isOn)
}

func (c *cluster) isOlderThan(age time.Duration, now time.Time) bool {
	return now.Sub(c.snapshot.At) > age
}

// pace sets the time of the next poll based on the cost of the last one.
func (a *account) pace(began time.Time, clusters, machines int, err error) {
	calls := 1 + clusters/clustersPerCall + machines/machinesPerCall
	a.adjustPause(err)
	interval := max(minLookInterval, time.Duration(calls)*callInterval, min(time.Duration(clusters)*clusterInterval, maxFleetInterval))
	a.nextLook = began.Add(withJitter(interval + a.pause))
}

// adjustPause lengthens the pause of a throttled account, and shortens it once calls succeed.
func (a *account) adjustPause(err error) {
	if err != nil && actuator.ClassOf(err) == actuator.Throttled {
		a.pause = max(min(max(2*a.pause, minThrottlePause), maxThrottlePause), askedPause(err))
		return
	}
	// A longer pause that the cloud has requested applies once.
	if a.pause = min(a.pause, maxThrottlePause) / 2; a.pause < minThrottlePause {
		a.pause = 0
	}
}

// askedPause returns the pause that the cloud requests.
func askedPause(err error) time.Duration {
	if known, ok := errors.AsType[*actuator.Error](err); ok {
		return min(known.RetryAfter, maxAskedPause)
	}
	return 0
}

// withJitter spreads the retries of accounts that were throttled at the same time.
func withJitter(d time.Duration) time.Duration { return wait.Jitter(d, jitter) }
