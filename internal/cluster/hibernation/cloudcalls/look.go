// SPDX-License-Identifier: Apache-2.0

package cloudcalls

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
)

// listInfraIDs returns the infraIDs of clusters without duplicates, and the target of one of the clusters. The targets
// of one account differ only in the infraID.
func (a *account) listInfraIDs(names []types.NamespacedName) (target actuator.Target, infraIDs []string) {
	seen := map[string]bool{}
	for _, name := range names {
		target = a.clusters[name].Target
		if !seen[target.InfraID] {
			infraIDs = append(infraIDs, target.InfraID)
		}
		seen[target.InfraID] = true
	}
	return target, infraIDs
}

// lookAt polls clusters of an account, and returns a function that publishes the results.
func (s *Service) lookAt(ctx context.Context, a *account, names []types.NamespacedName, target actuator.Target, infraIDs []string) func() {
	began, found := s.Clock.Now(), map[string]Snapshot{}
	failed := observeParts(ctx, a.batch, target, infraIDs, found)
	sizes := s.observeGroups(ctx, a, target, names, found)
	return func() {
		machines := 0
		for _, name := range names {
			// If the infraID of a cluster has changed during the poll, the cluster must be polled again, because its
			// new machines were not requested.
			if c := a.clusters[name]; c != nil {
				if seen, isLookedAt := found[c.Target.InfraID]; isLookedAt {
					machines += len(seen.Machines)
					s.publish(a, c, seen, began)
				}
			}
		}
		s.count(a, lookTask, failed)
		a.pace(began, len(infraIDs), machines+sizes*machinesPerCall, failed)
		s.askAgain(a, lookTask)
	}
}

// observeGroups polls the groups of the clusters that request them, in one call. An error is published only for these
// clusters. It returns the number of groups whose size needed a separate call.
func (s *Service) observeGroups(ctx context.Context, a *account, target actuator.Target, names []types.NamespacedName, found map[string]Snapshot) (sizes int) {
	cloud, ok := a.batch.(actuator.GroupActuator)
	wanted := s.groupsOf(a, names, found)
	if !ok || len(wanted) == 0 {
		return 0
	}
	groups, err := cloud.ObserveGroups(ctx, target, queriesFor(wanted))
	for _, g := range groups {
		if g.Manager != "" {
			sizes++
		}
	}
	for infraID, own := range wanted {
		seen := found[infraID]
		if err != nil {
			seen = Snapshot{Err: err}
		}
		for _, g := range groups {
			if _, isOwn := own[g.Name]; isOwn {
				seen.Groups = append(seen.Groups, g)
			}
		}
		found[infraID] = seen
	}
	return sizes
}

// groupsOf returns the groups to poll by infraID and name, and whether their sizes are wanted.
func (s *Service) groupsOf(a *account, names []types.NamespacedName, found map[string]Snapshot) map[string]map[string]bool {
	s.calls.Lock()
	defer s.calls.Unlock()
	wanted := map[string]map[string]bool{}
	for _, name := range names {
		c := a.clusters[name]
		if c == nil || !c.WantsGroups || found[c.Target.InfraID].Err != nil {
			continue
		}
		own := map[string]bool{}
		for _, group := range c.Groups {
			own[group] = c.WantsSizes
		}
		for _, m := range found[c.Target.InfraID].Machines {
			if m.Group != "" {
				own[m.Group] = c.WantsSizes
			}
		}
		if len(own) > 0 {
			wanted[c.Target.InfraID] = own
		}
	}
	return wanted
}

// queriesFor returns one query for each group, sorted by name.
func queriesFor(wanted map[string]map[string]bool) []actuator.GroupQuery {
	all := map[string]bool{}
	for _, own := range wanted {
		for name, wantsSize := range own {
			all[name] = all[name] || wantsSize
		}
	}
	var queries []actuator.GroupQuery
	for _, name := range slices.Sorted(maps.Keys(all)) {
		queries = append(queries, actuator.GroupQuery{Name: name, WantsSize: all[name]})
	}
	return queries
}

// observeParts polls clusters together. After an error that may concern only one cluster, each half is polled
// separately, so that the other clusters do not get the error. It returns only errors that concern the whole account.
// Such an error is also recorded for the clusters that are not polled because of it.
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

// isOfAccount reports whether other clusters of the account would get the same error.
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

// publish stores a result. It enqueues the cluster if a pass waits for the result or would report a change.
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
