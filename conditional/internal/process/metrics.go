// SPDX-License-Identifier: Apache-2.0

// Package process has what all groups of a process share: a list of their names, their metrics, and for each API server a
// detector, the informers and the limit of starts at once.
package process

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// groupSeries are the metrics of groups. They are made when somebody asks for them, so a group that sleeps keeps none.
type groupSeries struct{ state, transitions, starts, stops, overdue *prometheus.Desc }

func newGroupSeries() groupSeries {
	return groupSeries{
		state: prometheus.NewDesc("torpor_gate_state",
			"1 for the phase a conditional group is in, 0 for the others; Disabled and Forbidden stand for Dormant and say why.", []string{"group", "state"}, nil),
		transitions: prometheus.NewDesc("torpor_gate_transitions_total", "Phase changes of a conditional group.", []string{"group", "to", "reason"}, nil),
		starts:      prometheus.NewDesc("torpor_gate_start_seconds", "Time of a conditional group from Starting to Running.", []string{"group"}, nil),
		stops:       prometheus.NewDesc("torpor_gate_stop_seconds", "Time of a conditional group from Draining until everything has returned.", []string{"group"}, nil),
		overdue:     prometheus.NewDesc("torpor_gate_drain_timeouts_total", "Stops of a conditional group that outlasted its drain timeout.", []string{"group"}, nil),
	}
}

// registerShared registers a collector in controller-runtime's registry, or takes the one of its type that is already there: two
// managers may live in one process.
func registerShared[C prometheus.Collector](c *C) error {
	err := metrics.Registry.Register(*c)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := there.ExistingCollector.(C); ok {
			*c = old
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("register the metrics of conditional groups: %w", err)
	}
	return nil
}

// GroupEntry is an entry of the list.
type GroupEntry struct {
	Name string
	// Shared lets other groups have the name, too.
	Shared bool
	// Elected is the channel of the group's manager, which stays the same however the manager is decorated.
	Elected <-chan struct{}
	// Status returns what the page shows of the group.
	Status func() any
	// Metrics returns what its metrics show: the state, and the counts.
	Metrics func() (state string, counts GroupStats)
	// Places are the addresses that the group writes clients to at its starts.
	Places []uintptr
}

// AddGroup adds a group until leave is called.
func AddGroup(g GroupEntry) (leave func(), err error) {
	all, err := sharedRegistry()
	if err != nil {
		return nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, other := range all.groups {
		if other.Name == g.Name && !g.Shared && !other.Shared {
			return nil, errors.New("expected a name of its own, found another group of this name: set one with conditional.Name, or with Named of the builder")
		}
		if slices.ContainsFunc(g.Places, func(p uintptr) bool { return slices.Contains(other.Places, p) }) {
			return nil, fmt.Errorf("expected a reconciler of its own, found one that group %s has too, or that points to what the other's points to: "+
				"each start replaces the clients in it, so make one for each builder", other.Name)
		}
	}
	entry := &g
	all.groups = append(all.groups, entry)
	return func() { all.removeGroup(entry) }, nil
}

// HostOf returns the host of a manager's groups, which its channel identifies however the manager is decorated. The first caller's
// becomes it, unless add fails.
func HostOf[H any](elected <-chan struct{}, made H, add func() error) (host H, err error) {
	all, err := sharedRegistry()
	if err != nil {
		return host, err
	}
	all.hostsMu.Lock()
	defer all.hostsMu.Unlock()
	if there, ok := all.hosts[elected].(H); ok {
		return there, nil
	}
	if err := add(); err != nil {
		return host, err
	}
	all.hosts[elected] = made
	return made, nil
}

// DropHost forgets the host of a manager that has ended.
func DropHost(elected <-chan struct{}) {
	all, err := sharedRegistry()
	if err != nil {
		return // There was no host.
	}
	all.hostsMu.Lock()
	defer all.hostsMu.Unlock()
	delete(all.hosts, elected)
}

// ReserveControllerName takes a name among those of controller-runtime, which never frees one, unless groups have it already.
func ReserveControllerName(name string) error {
	all, err := sharedRegistry()
	if err != nil {
		return err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if _, has := all.names[name]; has {
		return nil
	}
	if _, err := controller.NewUnmanaged(name, controller.Options{Reconciler: reconcile.Func(nil)}); err != nil {
		return err
	}
	all.names[name] = struct{}{}
	return nil
}

func (all *registry) removeGroup(entry *GroupEntry) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.groups = slices.DeleteFunc(all.groups, func(g *GroupEntry) bool { return g == entry })
}

// groupsOfManager returns the groups of a manager in the order of their names.
func (all *registry) groupsOfManager(elected <-chan struct{}) []*GroupEntry {
	all.mu.Lock()
	defer all.mu.Unlock()
	var found []*GroupEntry
	for _, g := range all.groups {
		if g.Elected == elected {
			found = append(found, g)
		}
	}
	slices.SortStableFunc(found, func(a, b *GroupEntry) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// StatusPage shows the statuses of a manager's groups as JSON: {"groups": […]}.
func StatusPage(elected <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all, err := sharedRegistry()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		groups := []any{}
		for _, g := range all.groupsOfManager(elected) {
			groups = append(groups, g.Status())
		}
		page, err := json.MarshalIndent(map[string]any{"groups": groups}, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(page, '\n')) // An error means that the client has gone away.
	})
}

// registry is a collector, so that the process's registry of metrics, where controller-runtime has its own, keeps the only one.
type registry struct {
	groupSeries
	groupCount, serverCount, informerCount, leaseCount, degraded, probeCount *prometheus.Desc

	mu     sync.Mutex
	groups []*GroupEntry
	states map[stateKey]*SharedState

	hostsMu sync.Mutex
	hosts   map[<-chan struct{}]any

	vectorsMu sync.Mutex
	vectors   map[string]seriesDeleter // of controller-runtime, by name
	names     map[string]struct{}      // of controllers
}

func sharedRegistry() (*registry, error) {
	all := &registry{
		groupCount:    prometheus.NewDesc("torpor_gate_groups", "Conditional groups of this process.", nil, nil),
		serverCount:   prometheus.NewDesc("torpor_gate_api_servers", "API servers that conditional groups look at.", nil, nil),
		informerCount: prometheus.NewDesc("torpor_gate_active_informers", "Informers that run for conditional groups.", nil, nil),
		leaseCount:    prometheus.NewDesc("torpor_gate_informer_refs", "Uses of informers by conditional groups; groups share an informer.", nil, nil),
		degraded:      prometheus.NewDesc("torpor_gate_degraded", "Watches of this resource that are forbidden, so that discovery is polled instead.", []string{"resource"}, nil),
		probeCount:    prometheus.NewDesc("torpor_gate_probes_total", "Requests by which detectors looked for kinds.", []string{"result"}, nil),
		states:        map[stateKey]*SharedState{},
		vectors:       map[string]seriesDeleter{},
		hosts:         map[<-chan struct{}]any{},
		groupSeries:   newGroupSeries(),
		names:         map[string]struct{}{},
	}
	err := registerShared(&all)
	return all, err
}

// Describe names the metrics.
func (all *registry) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range append(all.descs(), all.groupCount, all.serverCount, all.informerCount, all.leaseCount, all.degraded, all.probeCount) {
		to <- desc
	}
}

// Collect counts.
func (all *registry) Collect(to chan<- prometheus.Metric) {
	all.mu.Lock()
	defer all.mu.Unlock()
	servers, informers, leases, probes := map[*rest.Config]bool{}, 0, 0, map[string]uint64{}
	degraded := map[string]int{}
	for k, h := range all.states {
		servers[k.cfg] = true
		informers += h.Informers.InformerCount()
		leases += h.Informers.LeaseCount()
		for resource, count := range h.Detector.RefusedWatches() {
			degraded[resource] += count
		}
		for result, count := range h.Detector.ProbeCounts() {
			probes[result] += count
		}
	}
	all.collect(to, all.groups)
	for desc, count := range map[*prometheus.Desc]int{
		all.groupCount: len(all.groups), all.serverCount: len(servers), all.informerCount: informers, all.leaseCount: leases,
	} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(count))
	}
	for resource, count := range degraded {
		to <- prometheus.MustNewConstMetric(all.degraded, prometheus.GaugeValue, float64(count), resource)
	}
	for result, count := range probes {
		to <- prometheus.MustNewConstMetric(all.probeCount, prometheus.CounterValue, float64(count), result)
	}
}
