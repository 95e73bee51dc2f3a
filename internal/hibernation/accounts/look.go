// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
)

// lookAt looks at clusters of an account and publishes what was found.
func (s *Service) lookAt(ctx context.Context, a *account, names []types.NamespacedName) {
	limited, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	began := s.Clock.Now()
	var infraIDs []string
	var target actuator.Target
	s.mu.Lock()
	seen := map[string]bool{}
	for _, name := range names {
		// Targets of one account differ by the infraID alone.
		if c := a.clusters[name]; c != nil {
			target = c.Target
			if !seen[target.InfraID] {
				infraIDs = append(infraIDs, target.InfraID)
			}
			seen[target.InfraID] = true
		}
	}
	s.mu.Unlock()
	found := map[string]Snapshot{}
	var failed error
	if len(infraIDs) > 0 {
		failed = observeParts(limited, a.batch, target, infraIDs, found)
	}
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	machines := 0
	for _, name := range names {
		c := a.clusters[name]
		if c == nil {
			continue
		}
		// A cluster whose infraID has changed since the look began stays wanted: no machines were found because none were asked for.
		if seen, isLookedAt := found[c.Target.InfraID]; isLookedAt {
			machines += len(seen.Machines)
			s.publish(a, c, seen, began)
		}
	}
	a.isLooking = false
	s.count(a, "look", failed)
	a.pace(began, len(infraIDs), machines, failed)
	s.wakeUp()
}

// observeParts looks at clusters together. An error that may be of one cluster alone must not be that of the others, so each half
// is looked at by itself then. It returns an error that is of the account, which is also that of the clusters that were not looked at because of it.
func observeParts(ctx context.Context, batch actuator.BatchActuator, target actuator.Target, infraIDs []string, found map[string]Snapshot) error {
	target.InfraID = infraIDs[0]
	machines, err := batch.ObserveAll(ctx, target, infraIDs)
	if err != nil && len(infraIDs) > 1 && !isOfAccount(err) {
		middle := len(infraIDs) / 2
		if err := observeParts(ctx, batch, target, infraIDs[:middle], found); err != nil {
			for _, infraID := range infraIDs[middle:] {
				found[infraID] = Snapshot{Err: err}
			}
			return err
		}
		return observeParts(ctx, batch, target, infraIDs[middle:], found)
	}
	for _, infraID := range infraIDs {
		found[infraID] = Snapshot{Machines: machines[infraID], Err: err}
	}
	if err != nil && isOfAccount(err) {
		return err
	}
	return nil
}

// isOfAccount reports whether an error says that other clusters of the account would get it too.
func isOfAccount(err error) bool {
	switch actuator.ClassOf(err) {
	case actuator.CredentialsMissing, actuator.CredentialsInvalid, actuator.PermissionDenied, actuator.Unreachable, actuator.Throttled:
		return true
	case actuator.NoCapacity, actuator.WrongState, actuator.NotFound, actuator.Other:
		return false
	default:
		return false
	}
}

// publish keeps a look, and enqueues the cluster if a pass waits for it or would report something else now.
func (s *Service) publish(a *account, c *cluster, seen Snapshot, began time.Time) {
	d, isWanted := a.wanted[c.Name]
	delete(a.wanted, c.Name)
	seen.At, seen.IsAnswer = began, d.isAwaited
	c.snapshot = seen
	switch {
	case d.isAwaited || stateOf(c.visible()) != c.reported:
		s.Enqueue(c.Name)
	case isWanted && d.interval > 0:
		a.want(c.Name, demand{due: began.Add(d.interval), interval: d.interval})
	}
}
