// SPDX-License-Identifier: Apache-2.0

// Package metrics has the metrics of groups, which all groups of a process share through the registry. A group has a
// fixed number of series: every label but the group's name comes from the state machine.
package metrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional/internal/statemachine"
)

// GroupMetrics holds the metrics of all groups.
type GroupMetrics struct {
	state       *prometheus.GaugeVec
	transitions *prometheus.CounterVec
	starts      *prometheus.HistogramVec
	stops       *prometheus.HistogramVec
	overdue     *prometheus.CounterVec
}

// New returns the metrics, registered.
func New() (*GroupMetrics, error) {
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
	err := errors.Join(RegisterShared(&g.state), RegisterShared(&g.transitions), RegisterShared(&g.starts), RegisterShared(&g.stops), RegisterShared(&g.overdue))
	return g, err
}

// durationBuckets go from the start of an idle controller to the time-out of a cache's sync.
func durationBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
}

// RegisterShared registers a collector in controller-runtime's registry, or takes the one of its type that is already there: two
// managers may live in one process.
func RegisterShared[C prometheus.Collector](c *C) error {
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
