// SPDX-License-Identifier: Apache-2.0

package cloudcalls

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
)

// Verb is the action that an order requests from the cloud.
type Verb string

// These are the verbs of orders.
const (
	StopVerb      Verb = "stop"
	StartVerb     Verb = "start"
	TerminateVerb Verb = "terminate"
	// HoldVerb suspends machine groups or scales them to zero, and ReleaseVerb restores them.
	HoldVerb    Verb = "hold"
	ReleaseVerb Verb = "release"
)

// IsOfStop reports whether the verb is part of a hibernation, not of a resume.
func (v Verb) IsOfStop() bool { return v != StartVerb && v != ReleaseVerb }

// firstStopPause is the pause before the first retry of a stop, and doubles with each retry. stopPatience limits the
// time of all retries.
const firstStopPause, stopPatience = 300 * time.Millisecond, 15 * time.Second

// parallelReads is the number of ClusterDeployments that are read in parallel before a stop. The passes of a fleet make
// twenty writes at once. With fewer parallel reads, orders would wait longer for the reads than for the cloud.
const parallelReads = 32

// order requests that a cluster's machines are stopped, started or terminated, or that groups are changed.
type order struct {
	verb Verb
	// ids are the ids of machines, or the names of groups.
	ids []string
	// changes are the changes to groups.
	changes []actuator.GroupChange
	// stoppedLater and terminatedLater are machines that are stopped or terminated after this stop. No machine is
	// stopped unless the account may also stop or terminate these.
	stoppedLater, terminatedLater []string
	// isPending is true until the cloud has answered the order.
	isPending bool
	since     time.Time
	// refused is the cloud's last refusal, refusedAt is its time, and refusedIDs are the refused machines or groups.
	// They are empty if the cloud has not refused the order.
	refused    error
	refusedIDs []string
	refusedAt  time.Time
	// stretch is the factor by which jitter lengthens the pause before refused machines are retried.
	stretch float64
}

// RefusedOrder is an order that the cloud has refused, for all machines or for some.
type RefusedOrder struct {
	Verb Verb
	Err  error
	// MachineIDs are the machines or groups for which the cloud refused the order.
	MachineIDs []string
}

// isOfGroups reports whether the order changes groups. A poll that began before the order was answered may still show
// the groups' old state.
func (o *order) isOfGroups() bool {
	return o != nil && (o.verb == HoldVerb || o.verb == ReleaseVerb)
}

// verbs returns all verbs of orders.
func verbs() []Verb {
	return []Verb{StopVerb, TerminateVerb, StartVerb, HoldVerb, ReleaseVerb}
}

func (c *cluster) refusedOrder() *RefusedOrder {
	if c.order == nil || c.order.refused == nil {
		return nil
	}
	return &RefusedOrder{Verb: c.order.verb, Err: c.order.refused, MachineIDs: slices.Clone(c.order.refusedIDs)}
}

// acceptedOrder is the last order that the cloud has accepted.
type acceptedOrder struct {
	verb Verb
	ids  []string
	at   time.Time
}

// covers reports whether an order would only repeat the accepted order. The cloud might not show the effect of that
// order yet.
func (c acceptedOrder) covers(verb Verb, ids []string, now time.Time) bool {
	return c.verb == verb && now.Before(c.at.Add(readLag)) &&
		!slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(c.ids, id) })
}

// Order requests a stop, start or termination of a cluster's machines, and returns immediately. Refused machines are
// skipped until rest has passed since the refusal. Look returns the refusal until the cloud accepts the order, or
// another one is requested.
func (s *Service) Order(name types.NamespacedName, verb Verb, ids []string, rest time.Duration) {
	s.queueOrder(name, verb, StopOrder{IDs: ids}, rest)
}

// OrderGroups is like Order, and changes groups of a cluster's machines. Refused groups are skipped until rest has
// passed since the refusal.
func (s *Service) OrderGroups(name types.NamespacedName, verb Verb, changes []actuator.GroupChange, rest time.Duration) {
	wanted := StopOrder{changes: changes}
	for _, change := range changes {
		wanted.IDs = append(wanted.IDs, change.Name)
	}
	s.queueOrder(name, verb, wanted, rest)
}

// StopOrder requests the stop of machines, and lists the machines to stop or terminate afterwards.
type StopOrder struct {
	IDs, StoppedLater, TerminatedLater []string

	changes []actuator.GroupChange
}

// OrderStop is like Order, for a stop that is followed by later steps. No machine is stopped unless the account has the
// permissions for these steps.
func (s *Service) OrderStop(name types.NamespacedName, wanted StopOrder, rest time.Duration) {
	s.queueOrder(name, StopVerb, wanted, rest)
}

func (s *Service) queueOrder(name types.NamespacedName, verb Verb, wanted StopOrder, rest time.Duration) {
	s.calls.Lock()
	defer s.calls.Unlock()
	c := s.clusters[name]
	if c == nil {
		return // The pass has polled the cluster before, so the cluster was deleted.
	}
	now := s.Clock.Now()
	if c.order == nil || c.order.verb != verb {
		delete(c.account.pending, name)
		c.order = &order{verb: verb}
	}
	o, ids := c.order, wanted.IDs
	if now.Before(o.refusedAt.Add(time.Duration(float64(rest) * o.stretch))) {
		ids = without(ids, o.refusedIDs)
	}
	if len(ids) > 0 && !o.isPending && !c.accepted.covers(verb, ids, now) {
		o.ids, o.isPending, o.since = slices.Clone(ids), true, now
		o.stoppedLater, o.terminatedLater = slices.Clone(wanted.StoppedLater), slices.Clone(wanted.TerminatedLater)
		o.changes = slices.Clone(wanted.changes)
		c.account.pending[name] = o
		s.calls.Ask(task{c.account.key, string(verb)}, later(now.Add(gatherTime), c.account.nextOrder))
	}
}

// Withdraw drops orders with the given verbs, except an order that is already being sent.
func (s *Service) Withdraw(name types.NamespacedName, verbs ...Verb) {
	s.calls.Lock()
	defer s.calls.Unlock()
	if c := s.clusters[name]; c != nil && c.order != nil && slices.Contains(verbs, c.order.verb) {
		c.order = nil
		delete(c.account.pending, name)
	}
}

func without(ids, those []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(those, id) })
}

// clusterOrder is an order that is being sent.
type clusterOrder struct {
	*order
	name   types.NamespacedName
	target actuator.Target
	// unaccepted are the machines for which the cloud has not accepted the order yet.
	unaccepted []string
	err        error
	// isStale is true if the order is no longer wanted, and is not sent. mayBeDone is true if the cloud may have
	// executed the order in an earlier attempt.
	isStale, mayBeDone bool
}

// takeOrders removes the oldest orders from the pending orders and returns them. Their number is limited, so that all
// their specs can be read again before the call times out.
func (a *account) takeOrders(verb Verb) []*clusterOrder {
	var batch []*clusterOrder
	for name, o := range a.pending {
		if o.verb == verb {
			batch = append(batch, &clusterOrder{order: o, name: name, target: a.clusters[name].Target, unaccepted: o.ids})
		}
	}
	slices.SortFunc(batch, func(x, y *clusterOrder) int { return x.since.Compare(y.since) })
	batch = batch[:min(len(batch), maxOrders)]
	machines := 0
	for i, o := range batch {
		if machines += len(o.ids); machines > maxOrderMachines && i > 0 {
			batch = batch[:i]
			break
		}
	}
	for _, o := range batch {
		delete(a.pending, o.name)
		a.clusters[o.name].inFlight = o.order
	}
	return batch
}

// sendOrders sends the orders of many clusters together, and publishes each result as soon as the cloud has answered.
// It returns a function that sets the time of the account's next order.
func (s *Service) sendOrders(ctx context.Context, a *account, verb Verb, batch []*clusterOrder) func() {
	began, machines := s.Clock.Now(), 0
	var failed error
	settle := func(answered []*clusterOrder) {
		if errors.Is(ctx.Err(), context.Canceled) {
			return // The service is stopping.
		}
		s.calls.Lock()
		defer s.calls.Unlock()
		now := s.Clock.Now()
		for _, o := range answered {
			s.settle(o, now)
			if o.err != nil && isOfAccount(o.err) {
				failed = o.err
			}
			machines += len(o.ids)
		}
	}
	switch verb {
	case StopVerb:
		requireRights(ctx, a.batch, batch, new(maxRightsQuestions))
		s.sendWithRecheck(ctx, a.batch.StopAll, batch, settle)
	case TerminateVerb:
		s.sendWithRecheck(ctx, terminateAll(a.batch), batch, settle)
	case HoldVerb:
		s.sendWithRecheck(ctx, changeGroups(a.batch, batch), batch, settle)
	case ReleaseVerb:
		send(ctx, changeGroups(a.batch, batch), batch)
		settle(batch)
	case StartVerb:
		send(ctx, a.batch.StartAll, batch)
		settle(batch)
	}
	return func() {
		s.count(a, string(verb), failed)
		a.adjustPause(failed)
		calls := 1 + machines/machinesPerOrderCall
		a.nextOrder = later(s.Clock.Now().Add(withJitter(gatherTime+a.pause)), began.Add(withJitter(time.Duration(calls)*orderCallInterval)))
		for _, paced := range verbs() {
			s.askAgain(a, string(paced))
		}
	}
}

// sendAll sends orders with one verb to a cloud. It returns one error per cluster. A nil error means that the order
// was accepted.
type sendAll func(context.Context, actuator.Target, [][]string) []error

// terminateAll returns TerminateAll of the actuator. Without an actuator.Terminator, the returned function fails,
// because the actuator may have been replaced after the machines were recorded.
func terminateAll(batch actuator.BatchActuator) sendAll {
	if cloud, ok := batch.(actuator.Terminator); ok {
		return cloud.TerminateAll
	}
	return func(_ context.Context, _ actuator.Target, clusters [][]string) []error {
		return eachCluster(clusters, 1, func([]string) error {
			return actuator.Errorf(actuator.Other, "Expected an actuator that terminates spot machines, found one that does not")
		})
	}
}

// parallelGroupChanges is the number of clusters of an account whose groups are changed at the same time. Each group needs
// a call of its own.
const parallelGroupChanges = 5

// changeGroups returns a function that sends the orders' changes to the named groups.
func changeGroups(batch actuator.BatchActuator, orders []*clusterOrder) sendAll {
	changes := map[string]actuator.GroupChange{}
	for _, o := range orders {
		for _, change := range o.changes {
			changes[change.Name] = change
		}
	}
	return func(ctx context.Context, t actuator.Target, clusters [][]string) []error {
		return eachCluster(clusters, parallelGroupChanges, func(names []string) error {
			cloud, ok := batch.(actuator.GroupActuator)
			if !ok {
				return actuator.Errorf(actuator.Other, "Expected an actuator that changes groups of machines, found one that does not")
			}
			var wanted []actuator.GroupChange
			for _, name := range names {
				wanted = append(wanted, changes[name])
			}
			return cloud.ChangeGroups(ctx, t, wanted)
		})
	}
}

// send sends the orders that are neither refused nor withdrawn, and returns them.
func send(ctx context.Context, do sendAll, batch []*clusterOrder) []*clusterOrder {
	inFlight := slices.DeleteFunc(slices.Clone(batch), func(o *clusterOrder) bool { return o.isStale || o.err != nil })
	var ids [][]string
	for _, o := range inFlight {
		ids = append(ids, o.unaccepted)
	}
	if len(inFlight) > 0 {
		for i, err := range do(ctx, inFlight[0].target, ids) {
			inFlight[i].err = err
		}
	}
	return inFlight
}

// sendWithRecheck sends stops, terminations and orders with HoldVerb. It retries for a while if the hub, the cloud or
// the controller of a machine is busy or unreachable. A retry omits machines for which the order was accepted. The
// result of an order is published without waiting for the other orders.
// Invariant: the specs are read from the hub before each attempt, so no stop is sent after a confirmed change to
// Running (TestFrequentFlipsStopNoRunningCluster, TestATerminationReadsTheSpecBefore, TestFaults).
func (s *Service) sendWithRecheck(ctx context.Context, do sendAll, orders []*clusterOrder, settle func([]*clusterOrder)) {
	began := s.Clock.Now()
	for pause := firstStopPause; ; pause *= 2 {
		s.recheckSpecs(ctx, orders)
		s.dropOrdersForMembers(orders)
		again := slices.DeleteFunc(send(ctx, do, orders), func(o *clusterOrder) bool {
			class := actuator.ClassOf(o.err)
			return o.err == nil || class != actuator.Throttled && class != actuator.Unreachable
		})
		settle(slices.DeleteFunc(orders, func(o *clusterOrder) bool { return slices.Contains(again, o) }))
		wait := withJitter(pause)
		for _, o := range again {
			wait = max(wait, askedPause(o.err))
		}
		if len(again) == 0 || s.Clock.Since(began)+wait > stopPatience || pauseFor(ctx, wait) != nil {
			settle(again)
			return // Later passes submit the refused orders again.
		}
		for _, o := range again {
			o.unaccepted = o.refusedMachines()
			o.mayBeDone = o.mayBeDone || actuator.ClassOf(o.err) == actuator.Unreachable || len(o.unaccepted) < len(o.ids)
			o.err = nil
		}
		orders = again
	}
}

func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// maxRightsQuestions limits the number of checks for missing permissions. Each check is two API calls for each 900
// machines.
const maxRightsQuestions = 20

// requireRights sets the error of each order whose permissions are missing or could not be checked. One check covers
// the machines of all orders. If it returns an error that may concern one cluster, the two halves of the orders are
// checked separately.
func requireRights(ctx context.Context, batch actuator.BatchActuator, orders []*clusterOrder, questions *int) {
	*questions--
	err := askForRights(ctx, batch, orders)
	mayBeOfOne := actuator.ClassOf(err) == actuator.PermissionDenied || !isOfAccount(err)
	switch {
	case err == nil:
	case mayBeOfOne && len(orders) > 1 && *questions > 0:
		middle := len(orders) / 2
		requireRights(ctx, batch, orders[:middle], questions)
		requireRights(ctx, batch, orders[middle:], questions)
	default:
		for _, o := range orders {
			o.err = err
		}
	}
}

func askForRights(ctx context.Context, batch actuator.BatchActuator, orders []*clusterOrder) error {
	var ids, terminatedLater []string
	for _, o := range orders {
		ids, terminatedLater = slices.Concat(ids, o.ids, o.stoppedLater), append(terminatedLater, o.terminatedLater...)
	}
	if err := batch.RequireStopRights(ctx, orders[0].target, ids); err != nil || len(terminatedLater) == 0 {
		return err
	}
	if cloud, ok := batch.(actuator.Terminator); ok {
		return cloud.RequireTerminateRights(ctx, orders[0].target, terminatedLater)
	}
	return terminateAll(batch)(ctx, orders[0].target, [][]string{terminatedLater})[0]
}

// recheckSpecs reads the specs again immediately before the machines are stopped or terminated.
func (s *Service) recheckSpecs(ctx context.Context, batch []*clusterOrder) {
	var group errgroup.Group
	group.SetLimit(parallelReads)
	for _, o := range batch {
		if o.err != nil {
			continue
		}
		group.Go(func() error {
			mayStop, err := s.MayStop(ctx, o.name)
			o.isStale = err == nil && !mayStop
			if err != nil {
				o.err = actuator.Errorf(actuator.Unreachable, "The ClusterDeployment cannot be read from the hub before its machines are stopped")
			}
			return nil
		})
	}
	_ = group.Wait() // Each order has its own error.
}

// dropOrdersForMembers marks orders as stale if, in the newest poll, one of their machines belongs to a cloud's group
// that is not suspended. Such a group terminates each member that stops. The passes of these clusters run again and
// report the group.
// Invariant: no order to stop a member of such a group is sent (TestStopOfAGroupMemberIsNotSent).
func (s *Service) dropOrdersForMembers(batch []*clusterOrder) {
	s.calls.Lock()
	defer s.calls.Unlock()
	for _, o := range batch {
		c := s.clusters[o.name]
		o.isStale = o.isStale || c != nil && slices.ContainsFunc(c.snapshot.Machines, func(m actuator.Machine) bool {
			return m.Group != "" && slices.Contains(o.unaccepted, m.ID) && !isSuspended(c.snapshot.Groups, m.Group)
		})
	}
}

func isSuspended(groups []actuator.Group, name string) bool {
	return slices.ContainsFunc(groups, func(g actuator.Group) bool { return g.Name == name && g.IsSuspended() })
}

// refusedMachines returns the machines for which the cloud did not accept the order.
func (o *clusterOrder) refusedMachines() []string {
	if o.err == nil {
		return nil
	}
	if known, ok := errors.AsType[*actuator.Error](o.err); ok && len(known.RefusedIDs) > 0 {
		return known.RefusedIDs
	}
	return o.unaccepted
}

// recordResult stores the machines that the cloud has refused, and returns those for which the cloud has accepted the
// order.
func (o *clusterOrder) recordResult(now time.Time) (taken []string) {
	refused := o.refusedMachines()
	if o.err != nil {
		o.refused, o.refusedAt, o.stretch = o.err, now, withJitter(time.Second).Seconds()
	}
	if o.refusedIDs = append(without(o.refusedIDs, o.ids), refused...); len(o.refusedIDs) == 0 {
		o.refused = nil
	}
	return without(o.ids, refused)
}

// settle stores the result of an order, and enqueues the cluster if the order failed, was dropped, or had been refused
// before.
func (s *Service) settle(o *clusterOrder, now time.Time) {
	c := s.clusters[o.name]
	if c == nil {
		return
	}
	if c.inFlight == o.order {
		c.inFlight = nil
	}
	wasRefused := o.refused != nil
	o.isPending = false
	if !o.isStale {
		c.accepted = acceptedOrder{o.verb, o.recordResult(now), now}
	}
	if o.err != nil || o.isStale && o.mayBeDone || o.isOfGroups() {
		// The order may have been executed despite the error, completely or partly.
		c.unknownUntil = now
	}
	if o.err != nil || o.isStale || wasRefused {
		s.Enqueue(o.name)
	}
}
