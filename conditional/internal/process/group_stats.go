// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/torpor-dev/torpor/conditional/internal/statemachine"
)

// What a dormant group shows instead of Dormant.
const (
	DisabledReason  = "Disabled"
	ForbiddenReason = "Forbidden"
)

// GroupStats counts what happens to a group. Its zero value is that of a group to which nothing has happened. It has no lock.
type GroupStats struct {
	transitions   map[transitionKey]uint64
	starts, stops durations
	overdueDrains uint64
}

type transitionKey struct{ to, reason string }

// CountTransition adds a transition.
func (s *GroupStats) CountTransition(to statemachine.Phase, reason statemachine.Fact) {
	if s.transitions == nil {
		s.transitions = map[transitionKey]uint64{}
	}
	s.transitions[transitionKey{string(to), string(reason)}]++
	if to == statemachine.Stuck {
		s.overdueDrains++
	}
}

// ObserveStart adds a start that reached Running.
func (s *GroupStats) ObserveStart(took time.Duration) { s.starts.observe(took) }

// ObserveStop adds a stop after which everything has returned.
func (s *GroupStats) ObserveStop(took time.Duration) { s.stops.observe(took) }

// add adds the counts of another group of the same name.
func (s *GroupStats) add(other GroupStats) {
	for key, count := range other.transitions {
		if s.transitions == nil {
			s.transitions = map[transitionKey]uint64{}
		}
		s.transitions[key] += count
	}
	s.starts.add(other.starts)
	s.stops.add(other.stops)
	s.overdueDrains += other.overdueDrains
}

// Clone returns a copy that shares nothing.
func (s *GroupStats) Clone() (own GroupStats) {
	own.add(*s)
	return own
}

// durationBuckets go from the start of an idle controller to the time-out of a cache's sync, in seconds.
func durationBuckets() [16]float64 {
	return [16]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
}

// durations is a histogram.
type durations struct {
	count   uint64
	seconds float64
	upTo    [16]uint64 // by durationBuckets, cumulative
}

func (d *durations) observe(took time.Duration) {
	d.count++
	d.seconds += took.Seconds()
	for i, limit := range durationBuckets() {
		if took.Seconds() <= limit {
			d.upTo[i]++
		}
	}
}

func (d *durations) add(other durations) {
	d.count += other.count
	d.seconds += other.seconds
	for i, count := range other.upTo {
		d.upTo[i] += count
	}
}

func (d *durations) metric(desc *prometheus.Desc, group string) prometheus.Metric {
	buckets := map[float64]uint64{}
	for i, limit := range durationBuckets() {
		buckets[limit] = d.upTo[i]
	}
	return prometheus.MustNewConstHistogram(desc, d.count, d.seconds, buckets, group)
}

func (d groupSeries) descs() []*prometheus.Desc {
	return []*prometheus.Desc{d.state, d.transitions, d.starts, d.stops, d.overdue}
}

// collect makes the metrics of all groups; those that share a name share its series.
func (d groupSeries) collect(to chan<- prometheus.Metric, groups []*GroupEntry) {
	states := []string{DisabledReason, ForbiddenReason}
	for _, p := range statemachine.AllPhases() {
		states = append(states, string(p))
	}
	shown, stats := map[string]map[string]bool{}, map[string]*GroupStats{}
	for _, g := range groups {
		if stats[g.Name] == nil {
			shown[g.Name], stats[g.Name] = map[string]bool{}, &GroupStats{}
		}
		state, counts := g.Metrics()
		shown[g.Name][state] = true
		stats[g.Name].add(counts)
	}
	for name, s := range stats {
		for _, state := range states {
			value := 0.0
			if shown[name][state] {
				value = 1
			}
			to <- prometheus.MustNewConstMetric(d.state, prometheus.GaugeValue, value, name, state)
		}
		for key, count := range s.transitions {
			to <- prometheus.MustNewConstMetric(d.transitions, prometheus.CounterValue, float64(count), name, key.to, key.reason)
		}
		to <- s.starts.metric(d.starts, name)
		to <- s.stops.metric(d.stops, name)
		to <- prometheus.MustNewConstMetric(d.overdue, prometheus.CounterValue, float64(s.overdueDrains), name)
	}
}
