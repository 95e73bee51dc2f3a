// SPDX-License-Identifier: Apache-2.0

// Package process contains the state that all groups of a process share: their names and metrics and, for each API
// server, a detector, the informers and the limit of concurrent starts.
package process

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/delegatingmanager"
)

// Registry contains the groups of all managers whose metrics have the same prefix. It is a collector, so
// controller-runtime's registry contains only one collector for all groups.
type Registry struct {
	groupState, groupHold, groupCount, serverCount, informerCount, leaseCount, degraded, probeCount *prometheus.Desc

	// PhaseChanges has the labels group, to and reason. OverdueDrains, StartDurations and StopDurations have only the
	// label group.
	PhaseChanges, OverdueDrains   *prometheus.CounterVec
	StartDurations, StopDurations *prometheus.HistogramVec

	mu     sync.Mutex
	groups []*GroupEntry
	states map[stateKey]*SharedState

	hostsMu sync.Mutex
	hosts   map[<-chan struct{}]any

	vectors map[string]seriesDeleter // vectors holds the metrics of controller-runtime by name
	names   map[string]struct{}      // names holds the controller names that groups have reserved
}

// RegistryOf returns the registry for the managers with this cache. The cache is nil for a cluster without a manager.
func RegistryOf(outer *delegatingmanager.Cache) (*Registry, error) {
	prefix := outer.MetricsPrefix()
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	// The buckets cover the range from the start of an idle controller to the timeout of a cache's sync.
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, []string{"group"})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	made := &Registry{
		groupState: desc("_state",
			"1 for the current state of a conditional group, 0 for all others. The states are the phases; a dormant group can also have the state Disabled, Forbidden or Elsewhere.", "group", "state"),
		groupHold: desc("_held_back",
			"1 if this reason delays the start or the stop of a conditional group: RestartLimit, Forbidden, WatchForbidden or Draining.", "group", "reason"),
		groupCount:     desc("_groups", "Number of conditional groups in this process."),
		serverCount:    desc("_api_servers", "Number of API servers that conditional groups watch."),
		informerCount:  desc("_active_informers", "Number of informers that run for conditional groups."),
		leaseCount:     desc("_informer_refs", "Number of references of conditional groups to informers, which they share."),
		degraded:       desc("_degraded", "Number of watches of this resource (CRDs or APIServices) that are forbidden; discovery is polled instead.", "resource"),
		probeCount:     desc("_probes_total", "Number of requests that check whether kinds are served: discovery queries and short watches.", "result"),
		PhaseChanges:   counter("_transitions_total", "Number of phase changes of a conditional group.", "group", "to", "reason"),
		OverdueDrains:  counter("_drain_timeouts_total", "Number of stops of a conditional group that exceeded its drain timeout.", "group"),
		StartDurations: histogram("_start_seconds", "Time from the phase Starting to the phase Running of a conditional group."),
		StopDurations:  histogram("_stop_seconds", "Time from the phase Draining until all runnables of a conditional group have returned."),
		states:         map[stateKey]*SharedState{},
		vectors:        findControllerVectors(),
		hosts:          map[<-chan struct{}]any{},
		names:          map[string]struct{}{},
	}
	// Two managers may run in one process. In that case, use the registry of the first one.
	err := metrics.Registry.Register(made)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if first, ok := there.ExistingCollector.(*Registry); ok {
			return first, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register the metrics of conditional groups: %w", err)
	}
	return made, nil
}

type GroupEntry struct {
	Name string
	// Shared allows other groups to have the same name.
	Shared bool
	// Elected is the channel that Elected of the group's manager returns. It stays the same if the manager is wrapped.
	Elected <-chan struct{}
	// Show returns the data for the status page and the metrics.
	Show func() GroupView
	// States and Holds return all values of GroupView.State and GroupView.Holds.
	States, Holds func() []string
}

// GroupView contains the data of a group for the status page and the metrics.
type GroupView struct {
	// Page is the entry for the status page.
	Page  any
	State string
	// Holds lists the reasons why the group is held back.
	Holds []string
}

// AddGroup adds a group. leave removes the group and deletes its series.
func (all *Registry) AddGroup(g *GroupEntry) (leave func(), err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, other := range all.groups {
		if other.Name == g.Name && !g.Shared && !other.Shared {
			return nil, errors.New("expected a unique name, found another group of this name: set another name with conditional.Name, or with Named of the builder")
		}
	}
	all.groups = append(all.groups, g)
	return func() { all.removeGroup(g) }, nil
}

func (all *Registry) removeGroup(gone *GroupEntry) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.groups = slices.DeleteFunc(all.groups, func(g *GroupEntry) bool { return g == gone })
	if slices.ContainsFunc(all.groups, func(g *GroupEntry) bool { return g.Name == gone.Name }) {
		return // The remaining groups share the series.
	}
	of := prometheus.Labels{"group": gone.Name}
	for _, v := range []seriesDeleter{all.PhaseChanges, all.OverdueDrains, all.StartDurations, all.StopDurations} {
		v.DeletePartialMatch(of)
	}
}

// HostOf returns the host of a manager's groups. The manager is identified by its channel Elected, which stays the same
// if the manager is wrapped. The value of the first caller becomes the host, unless add fails.
func HostOf[H any](all *Registry, elected <-chan struct{}, made H, add func() error) (host H, err error) {
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

func (all *Registry) DropHost(elected <-chan struct{}) {
	all.hostsMu.Lock()
	defer all.hostsMu.Unlock()
	delete(all.hosts, elected)
}

// ReserveControllerName reserves a controller name in controller-runtime, unless a group has already reserved it.
// controller-runtime never frees a name.
func (all *Registry) ReserveControllerName(name string) error {
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

// StatusPage serves the statuses of a manager's groups as JSON: {"groups": […]}.
func (all *Registry) StatusPage(elected <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all.mu.Lock()
		groups := slices.Clone(all.groups)
		all.mu.Unlock()
		slices.SortStableFunc(groups, func(a, b *GroupEntry) int { return cmp.Compare(a.Name, b.Name) })
		shown := []any{}
		for _, g := range groups {
			if g.Elected == elected {
				shown = append(shown, g.Show().Page)
			}
		}
		page, err := json.MarshalIndent(map[string]any{"groups": shown}, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(page, '\n')) // An error means that the client has disconnected.
	})
}

func (all *Registry) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{all.groupState, all.groupHold, all.groupCount, all.serverCount, all.informerCount, all.leaseCount, all.degraded, all.probeCount} {
		to <- desc
	}
	for _, v := range all.countedVectors() {
		v.Describe(to)
	}
}

func (all *Registry) countedVectors() []prometheus.Collector {
	return []prometheus.Collector{all.PhaseChanges, all.OverdueDrains, all.StartDurations, all.StopDurations}
}

func (all *Registry) Collect(to chan<- prometheus.Metric) {
	for _, v := range all.countedVectors() {
		v.Collect(to)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
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
	gauge(all.groupCount, len(all.groups))
	gauge(all.serverCount, len(servers))
	gauge(all.informerCount, informers)
	gauge(all.leaseCount, leases)
	for resource, count := range degraded {
		gauge(all.degraded, count, resource)
	}
	for result, count := range probes {
		to <- prometheus.MustNewConstMetric(all.probeCount, prometheus.CounterValue, float64(count), result)
	}
	// Groups that share a name share one series.
	type series struct {
		desc         *prometheus.Desc
		group, value string
	}
	shown := map[series]int{}
	for _, g := range all.groups {
		view := g.Show()
		for _, state := range g.States() {
			shown[series{all.groupState, g.Name, state}] += 0
		}
		for _, reason := range g.Holds() {
			shown[series{all.groupHold, g.Name, reason}] += 0
		}
		shown[series{all.groupState, g.Name, view.State}] = 1
		for _, reason := range view.Holds {
			shown[series{all.groupHold, g.Name, reason}] = 1
		}
	}
	for of, value := range shown {
		gauge(of.desc, value, of.group, of.value)
	}
}

type seriesDeleter interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

// DeleteQueueGauges deletes the gauges of a controller's queue, because controller-runtime still counts the requests
// that were dropped at a stop.
func (all *Registry) DeleteQueueGauges(controller string) {
	all.DeleteSeries(controller, "workqueue_depth", "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds")
}

// DeleteSeries deletes the controller's series of these metrics, or of all metrics.
func (all *Registry) DeleteSeries(controller string, only ...string) {
	for name, v := range all.vectors {
		if len(only) == 0 || slices.Contains(only, name) {
			v.DeletePartialMatch(prometheus.Labels{"controller": controller})
		}
	}
}

// findControllerVectors returns controller-runtime's vectors that have the label controller, by name.
// controller-runtime neither exports them nor deletes their series. Its registry returns an existing vector, as part of
// an error, when a collector with the same Desc is registered.
func findControllerVectors() map[string]seriesDeleter {
	vectors := map[string]seriesDeleter{}
	for _, desc := range describeAll(metrics.Registry) {
		text := desc.String() // This is the only way to get the name and the labels.
		name, _, _ := strings.Cut(strings.TrimPrefix(text, `Desc{fqName: "`), `"`)
		_, labels, _ := strings.Cut(text, "variableLabels: {")
		isOfControllers := strings.HasPrefix(name, "workqueue_") || strings.HasPrefix(name, "controller_runtime_")
		if !isOfControllers || !slices.Contains(strings.Split(strings.TrimRight(labels, "}"), ","), "controller") {
			continue
		}
		there, _ := errors.AsType[prometheus.AlreadyRegisteredError](metrics.Registry.Register(descOnly{desc}))
		if v, ok := there.ExistingCollector.(seriesDeleter); ok {
			vectors[name] = v
		}
	}
	return vectors
}

// describeAll returns the Descs of all metrics. It returns nothing if controller-runtime's registry was replaced by a
// registry of another type.
func describeAll(registry prometheus.Registerer) (all []*prometheus.Desc) {
	described, ok := registry.(prometheus.Collector)
	if !ok {
		return nil
	}
	to := make(chan *prometheus.Desc)
	go func() {
		described.Describe(to)
		close(to)
	}()
	for desc := range to {
		all = append(all, desc)
	}
	return all
}

type descOnly struct{ desc *prometheus.Desc }

func (d descOnly) Describe(to chan<- *prometheus.Desc) { to <- d.desc }

func (descOnly) Collect(chan<- prometheus.Metric) {}
