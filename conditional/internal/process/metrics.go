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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional/internal/statemachine"
)

// GroupMetrics holds the metrics of all groups, which share them through the registry. A group has a fixed number of
// series: every label but the group's name comes from the state machine.
type GroupMetrics struct {
	state       *prometheus.GaugeVec
	transitions *prometheus.CounterVec
	starts      *prometheus.HistogramVec
	stops       *prometheus.HistogramVec
	overdue     *prometheus.CounterVec
}

// NewGroupMetrics returns the metrics, registered.
func NewGroupMetrics() (*GroupMetrics, error) {
	g := &GroupMetrics{
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "torpor_gate_state", Help: "1 for the phase a conditional group is in, 0 for the others; Disabled and Forbidden stand for Dormant and say why.",
		}, []string{"group", "state"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_gate_transitions_total", Help: "Phase changes of a conditional group.",
		}, []string{"group", "to", "reason"}),
		starts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "torpor_gate_start_seconds", Help: "Time of a conditional group from Starting to Running.", Buckets: durationBuckets(),
		}, []string{"group"}),
		stops: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "torpor_gate_stop_seconds", Help: "Time of a conditional group from Draining until everything has returned.", Buckets: durationBuckets(),
		}, []string{"group"}),
		overdue: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_gate_drain_timeouts_total", Help: "Stops of a conditional group that outlasted its drain timeout.",
		}, []string{"group"}),
	}
	err := errors.Join(registerShared(&g.state), registerShared(&g.transitions), registerShared(&g.starts), registerShared(&g.stops), registerShared(&g.overdue))
	return g, err
}

// durationBuckets go from the start of an idle controller to the time-out of a cache's sync.
func durationBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
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

// InitGroup makes the series of a group that have no further label, so that a rate over the first start is right.
func (g *GroupMetrics) InitGroup(group string) {
	g.starts.WithLabelValues(group)
	g.stops.WithLabelValues(group)
	g.overdue.WithLabelValues(group)
}

// SetState sets what a group shows: its phase, or why it is dormant if that is one of the reasons.
func (g *GroupMetrics) SetState(group, now string, dormantReasons ...string) {
	for _, p := range statemachine.AllPhases() {
		dormantReasons = append(dormantReasons, string(p))
	}
	for _, state := range dormantReasons {
		value := 0.0
		if state == now {
			value = 1
		}
		g.state.WithLabelValues(group, state).Set(value)
	}
}

// CountTransition adds a transition.
func (g *GroupMetrics) CountTransition(group string, to statemachine.Phase, reason statemachine.Fact) {
	g.transitions.WithLabelValues(group, string(to), string(reason)).Inc()
	if to == statemachine.Stuck {
		g.overdue.WithLabelValues(group).Inc()
	}
}

// ObserveStart adds a start that reached Running.
func (g *GroupMetrics) ObserveStart(group string, took time.Duration) {
	g.starts.WithLabelValues(group).Observe(took.Seconds())
}

// ObserveStop adds a stop after which everything has returned.
func (g *GroupMetrics) ObserveStop(group string, took time.Duration) {
	g.stops.WithLabelValues(group).Observe(took.Seconds())
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
}

// AddGroup adds a group until leave is called. First is true for the first one of its manager.
func AddGroup(g GroupEntry) (leave func(), first bool, err error) {
	all, err := sharedRegistry()
	if err != nil {
		return nil, false, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	first = true
	for _, other := range all.groups {
		if other.Name == g.Name && !g.Shared && !other.Shared {
			return nil, false, errors.New("expected a name of its own, found another group of this name: set one with conditional.Name, or with Named of the builder")
		}
		first = first && other.Elected != g.Elected
	}
	entry := &g
	all.groups = append(all.groups, entry)
	return func() { all.removeGroup(entry) }, first, nil
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
	groupCount, serverCount, informerCount, leaseCount, degraded, probeCount *prometheus.Desc

	mu     sync.Mutex
	groups []*GroupEntry
	states map[stateKey]*SharedState

	vectorsMu sync.Mutex
	vectors   map[string]seriesDeleter // of controller-runtime, by name
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
	}
	err := registerShared(&all)
	return all, err
}

// Describe names the metrics.
func (all *registry) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{all.groupCount, all.serverCount, all.informerCount, all.leaseCount, all.degraded, all.probeCount} {
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
