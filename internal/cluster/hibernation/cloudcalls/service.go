// SPDX-License-Identifier: Apache-2.0

// Package cloudcalls polls clouds and sends orders to them. It makes joint calls for all clusters of an account, and
// serves each account independently. Reconcile passes read the last known state and submit orders; they never wait for
// a cloud.
//
// Reading order: service.go (called by passes) → schedule.go (when an account is called) → look.go (polls) → order.go.
package cloudcalls

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/background"
)

// Service is safe for concurrent use. Its fields are set before it is used.
type Service struct {
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Enqueue schedules a pass of the cluster, and does not block.
	Enqueue func(cluster types.NamespacedName)
	// MayStop reads from the hub's API server whether a cluster should still hibernate. Passes read a cache,
	// which may be stale.
	MayStop func(ctx context.Context, cluster types.NamespacedName) (bool, error)

	// calls contains the lock that guards all state of the service.
	calls    *background.Service[task, *account]
	accounts map[string]*account
	clusters map[types.NamespacedName]*cluster
	counts   map[Operation]float64
}

// NewService returns a service, which calls no cloud until it is started.
func NewService(c clock.PassiveClock) *Service {
	s := &Service{Clock: c, accounts: map[string]*account{}, clusters: map[types.NamespacedName]*cluster{}, counts: map[Operation]float64{}}
	s.calls = background.NewService(c, s.take)
	return s
}

// Operation is the kind of a call to an account, and the class of its error. The class is empty if the call
// succeeded.
type Operation struct {
	Account, Name string
	ErrorClass    actuator.ErrorClass
}

// CountCalls returns the number of calls by operation. The names of accounts do not contain secrets.
func (s *Service) CountCalls() map[Operation]float64 {
	s.calls.Lock()
	defer s.calls.Unlock()
	return maps.Clone(s.counts)
}

// count counts a call. An account's counts are dropped when its last cluster is removed.
func (s *Service) count(a *account, name string, err error) {
	o := Operation{Account: a.displayName(), Name: name}
	if err != nil {
		o.ErrorClass = actuator.ClassOf(err)
	}
	s.counts[o]++
}

// displayName returns the beginning of the key. The key contains a hash of the credentials, or the name of the cluster.
func (a *account) displayName() string {
	const shown = 20
	return a.key[:min(shown, len(a.key))]
}

// Cluster identifies the machines of a ClusterDeployment.
type Cluster struct {
	Name     types.NamespacedName
	Actuator actuator.Actuator
	Target   actuator.Target
	// WantsGroups is true if the groups of the machines are also polled, and WantsSizes if sizes that take additional
	// calls are polled as well. Groups are the names of additional groups.
	WantsGroups, WantsSizes bool
	Groups                  []string
}

// Snapshot is the known state of a cluster's machines at a time.
type Snapshot struct {
	Machines []actuator.Machine
	// Groups are the groups of the machines; empty unless the request sets WantsGroups.
	Groups []actuator.Group
	// Err explains why the machines are unknown.
	Err error
	// At is the time at which the poll began.
	At time.Time
	// IsAnswer is true if a pass has waited for this poll.
	IsAnswer bool
	// IsUsed is true if an earlier pass has read this snapshot.
	IsUsed bool
	// IsScheduled is true if the pass runs by schedule, and not because of a change.
	IsScheduled bool
	// Refused is the last order that the cloud has refused. It is nil after an accepted order, or if another order is
	// wanted.
	Refused *RefusedOrder
}

// cluster is the state of one cluster.
type cluster struct {
	Cluster
	account *account
	// credentialsAt is when the current credentials were read.
	credentialsAt time.Time
	// snapshot is the newest result. Its time is zero before the first poll.
	snapshot Snapshot
	// reported is the state that the last pass read.
	reported string
	order    *order
	// inFlight is the order that is being sent to the cloud, even if it was withdrawn in the meantime.
	inFlight *order
	// unknownUntil is the last time at which the result of an order was unknown. Results of polls that began earlier
	// are ignored.
	unknownUntil time.Time
	// nextPass is when the next pass runs by schedule.
	nextPass time.Time
	// accepted is the last order that the cloud has accepted.
	accepted acceptedOrder
}

const (
	// readLag is how long after an order a cloud may still return the old state.
	readLag = 10 * time.Second
	// gatherTime is how long requests are collected before the cloud is called.
	gatherTime = 100 * time.Millisecond
	// credentialsAge is how long working credentials are used before the next read.
	credentialsAge = time.Minute
)

// Look returns the known state of a cluster's machines. The second result is false if the state is unknown. A cluster
// that changes its account or infraID is treated as a new cluster.
func (s *Service) Look(ctx context.Context, c Cluster) (Snapshot, bool) {
	key, batch, err := accountOf(ctx, c)
	if err != nil {
		return Snapshot{Err: err, At: s.Clock.Now()}, true
	}
	s.calls.Lock()
	defer s.calls.Unlock()
	known := s.register(c, key, batch)
	if known.snapshot.At.IsZero() || known.snapshot.At.Before(known.unknownUntil) || known.inFlight.isOfGroups() {
		return Snapshot{}, false
	}
	seen := known.visible()
	seen.Refused = known.refusedOrder()
	seen.IsScheduled = !known.nextPass.IsZero() && !s.Clock.Now().Before(known.nextPass)
	known.reported = stateOf(seen)
	return seen, true
}

func (s *Service) register(c Cluster, key string, batch actuator.BatchActuator) *cluster {
	known := s.clusters[c.Name]
	if known != nil && known.account.key == key && known.Target.InfraID == c.Target.InfraID {
		if c.WantsGroups && !known.WantsGroups || c.WantsSizes && !known.WantsSizes {
			known.unknownUntil = s.Clock.Now() // The last poll did not read the groups, or did not read their sizes.
		}
		known.Cluster = c
		if s.Clock.Since(known.credentialsAt) >= credentialsAge {
			known.credentialsAt = s.Clock.Now()
		}
		return known
	}
	s.forget(c.Name)
	a := s.accounts[key]
	if a == nil {
		a = newAccount(key, batch, s.Clock.Now())
		s.accounts[key] = a
		for _, name := range tasks() {
			s.calls.Put(task{key, name}, a)
		}
		s.calls.Ask(task{key, turnTask}, a.nextOffLook)
	}
	known = &cluster{Cluster: c, account: a, credentialsAt: s.Clock.Now()}
	a.clusters[c.Name], s.clusters[c.Name] = known, known
	return known
}

// Credentials returns the credentials of a cluster's last poll if they are recent; nil if they must be read.
func (s *Service) Credentials(name types.NamespacedName) map[string][]byte {
	s.calls.Lock()
	defer s.calls.Unlock()
	known := s.clusters[name]
	if known == nil || known.snapshot.Err != nil || s.Clock.Since(known.credentialsAt) >= credentialsAge {
		return nil
	}
	return known.Target.Credentials
}

// ForgetCluster drops the state and the orders of a cluster.
func (s *Service) ForgetCluster(name types.NamespacedName) {
	s.calls.Lock()
	defer s.calls.Unlock()
	s.forget(name)
}

func (s *Service) forget(name types.NamespacedName) {
	known := s.clusters[name]
	if known == nil {
		return
	}
	a := known.account
	delete(s.clusters, name)
	delete(a.clusters, name)
	delete(a.wanted, name)
	delete(a.pending, name)
	if len(a.clusters) == 0 {
		delete(s.accounts, a.key)
		for _, name := range tasks() {
			s.calls.Forget(task{a.key, name})
		}
		maps.DeleteFunc(s.counts, func(o Operation, _ float64) bool { return o.Account == a.displayName() })
	}
}

// FinishPass records that a pass has used its snapshot, and when the next pass runs by schedule.
func (s *Service) FinishPass(name types.NamespacedName, after time.Duration) {
	s.calls.Lock()
	defer s.calls.Unlock()
	if known := s.clusters[name]; known != nil {
		known.nextPass = s.Clock.Now().Add(after)
		known.snapshot.IsAnswer, known.snapshot.IsUsed = false, true
	}
}

// RefreshMachines polls a cluster soon, and then enqueues it.
func (s *Service) RefreshMachines(name types.NamespacedName) {
	s.want(name, demand{due: s.Clock.Now().Add(gatherTime), isAwaited: true})
}

// Watch polls a cluster again after an interval, and enqueues it once its machines have changed. An interval of zero
// stops the watch. A cluster that is off is then polled in turns (see turnInterval), and is still enqueued after a
// change.
func (s *Service) Watch(name types.NamespacedName, interval time.Duration) {
	if interval == 0 {
		s.unwatch(name)
		return
	}
	s.want(name, demand{due: s.Clock.Now().Add(interval), interval: interval})
}

// unwatch cancels the polls of a cluster, except a poll that a pass waits for.
func (s *Service) unwatch(name types.NamespacedName) {
	s.calls.Lock()
	defer s.calls.Unlock()
	known := s.clusters[name]
	if known == nil {
		return
	}
	if d, isWanted := known.account.wanted[name]; isWanted && d.isAwaited {
		known.account.wanted[name] = demand{due: d.due, isAwaited: true}
		return
	}
	delete(known.account.wanted, name)
}

func (s *Service) want(name types.NamespacedName, d demand) {
	s.calls.Lock()
	defer s.calls.Unlock()
	if known := s.clusters[name]; known != nil {
		known.account.want(name, d)
		s.calls.Ask(task{known.account.key, lookTask}, later(d.due, known.account.nextLook))
	}
}

// visible returns the snapshot with the effects of orders that the cloud might not show yet. The order that is being
// sent is applied after the accepted order.
// Invariant: a poll that began before an order, or up to readLag after it, does not revert the effect of the order
// (TestSnapshotBeforeAnOrderIsIgnored).
func (c *cluster) visible() Snapshot {
	seen := c.snapshot
	seen.Machines = slices.Clone(seen.Machines)
	if seen.At.Before(c.accepted.at.Add(readLag)) {
		follow(seen.Machines, c.accepted.verb, c.accepted.ids)
	}
	if c.inFlight != nil {
		follow(seen.Machines, c.inFlight.verb, c.inFlight.ids)
	}
	return seen
}

// follow applies the effect of an order to machines.
func follow(machines []actuator.Machine, verb Verb, ids []string) {
	for i := range machines {
		m := &machines[i]
		if !slices.Contains(ids, m.ID) {
			continue
		}
		switch {
		case verb == StopVerb && (m.State == actuator.Running || m.HoldsCapacity):
			m.State, m.HoldsCapacity = actuator.Stopping, false
		case verb == TerminateVerb && (m.State == actuator.Running || m.State == actuator.Starting):
			m.State = actuator.Stopping
		case verb == StartVerb && m.State == actuator.Stopped:
			m.State = actuator.Starting
		}
	}
}

// stateOf returns the same text for two snapshots that a pass would report in the same way.
func stateOf(seen Snapshot) string {
	if seen.Err != nil {
		return "error: " + seen.Err.Error()
	}
	var text []byte
	for _, m := range seen.Machines {
		text = append(append(append(append(text, m.ID...), ' '), m.State...), '\n')
		if m.HoldsCapacity {
			text = append(text, "held\n"...)
		}
		text = append(append(text, m.Note...), m.MissingReservation...)
		for _, quota := range m.ExceededQuotas {
			text = append(text, quota...)
		}
	}
	for _, g := range seen.Groups {
		text = fmt.Appendf(text, "%s %d %d %d %q %q %q\n", g.Name, g.Min, g.Desired, g.InService, g.Suspended, g.Unscalable, g.Unsettled)
	}
	return string(text)
}

// accountOf returns the account of a cluster. An actuator that cannot batch has one account for each cluster.
func accountOf(ctx context.Context, c Cluster) (string, actuator.BatchActuator, error) {
	batch, ok := c.Actuator.(actuator.BatchActuator)
	if !ok {
		return "cluster/" + c.Name.String(), singleCluster{c.Actuator}, nil
	}
	key, err := batch.AccountOf(ctx, c.Target)
	if err != nil {
		return "", nil, fmt.Errorf("find the account: %w", err)
	}
	return c.Actuator.Platform() + "/" + key, batch, nil
}

// singleCluster serves one cluster with an actuator that cannot batch.
type singleCluster struct{ actuator.Actuator }

// AccountOf implements actuator.BatchActuator.
func (singleCluster) AccountOf(context.Context, actuator.Target) (string, error) { return "", nil }

// ObserveAll implements actuator.BatchActuator.
func (s singleCluster) ObserveAll(ctx context.Context, t actuator.Target, infraIDs []string) (map[string][]actuator.Machine, error) {
	found := map[string][]actuator.Machine{}
	for _, infraID := range infraIDs {
		t.InfraID = infraID
		machines, err := s.Observe(ctx, t)
		if err != nil {
			return nil, err
		}
		found[infraID] = machines
	}
	return found, nil
}

// RequireStopRights implements actuator.BatchActuator. Stop itself detects missing rights.
func (singleCluster) RequireStopRights(context.Context, actuator.Target, []string) error { return nil }

// StopAll implements actuator.BatchActuator.
func (s singleCluster) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return eachCluster(clusters, 1, func(ids []string) error { return s.Stop(ctx, t, ids) })
}

// StartAll implements actuator.BatchActuator.
func (s singleCluster) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return eachCluster(clusters, 1, func(ids []string) error { return s.Start(ctx, t, ids) })
}

// eachCluster calls do for each cluster, at most parallel calls at the same time, and returns the errors in the order
// of the clusters.
func eachCluster(clusters [][]string, parallel int, do func([]string) error) []error {
	errs := make([]error, len(clusters))
	var calls errgroup.Group
	calls.SetLimit(parallel)
	for i, ids := range clusters {
		calls.Go(func() error {
			errs[i] = do(ids)
			return nil
		})
	}
	_ = calls.Wait() // Each cluster has its own error.
	return errs
}
