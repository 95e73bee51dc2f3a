// SPDX-License-Identifier: Apache-2.0

// Package metrics exports gauges of the stops in effect, and counters of the machine, CPU and memory time that stops
// save. The metrics are the same for every kind that can be stopped, so that one query covers all kinds.
package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

// Gauges exports the stops of one kind. No label contains the requester, because only users who can read the object may
// see it.
type Gauges struct{ since, until *prometheus.Desc }

// NewGauges makes the gauges of a kind.
func NewGauges(kind string) *Gauges {
	labels, of := []string{"namespace", "name", "part"}, prometheus.Labels{"kind": kind}
	return &Gauges{
		since: prometheus.NewDesc("torpor_stop_since_timestamp_seconds", "Time at which a manual stop in effect was requested, in Unix time; absent for objects without a manual stop.", labels, of),
		until: prometheus.NewDesc("torpor_stop_until_timestamp_seconds", "Time at which a manual stop in effect ends automatically, in Unix time; absent for stops without an end.", labels, of),
	}
}

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.since
	ch <- g.until
}

// CollectStop exports the stop of a part of an object, if one is in effect.
func (g *Gauges) CollectStop(ch chan<- prometheus.Metric, obj metav1.Object, part string, stops stoprecord.Records) {
	if !stops.Holds() {
		return
	}
	newest := stops.RequestedStop()
	for of, at := range map[*prometheus.Desc]*metav1.Time{g.since: &newest.Since, g.until: newest.Until} {
		if at != nil {
			ch <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, float64(at.Unix()), obj.GetNamespace(), obj.GetName(), part)
		}
	}
}

// Counters exports the savings of one kind. Each object that was ever stopped has its own series, which ends when the
// object is deleted. One series for all objects would decrease at that time, and Prometheus treats a decrease as a
// reset to zero.
type Counters struct {
	meter                 atomic.Pointer[savings.Meter]
	machines, cpu, memory *prometheus.Desc
}

// NewMachineCounters returns the counter of the machine time that stops of a kind save.
func NewMachineCounters(kind string) *Counters {
	labels, of := savedLabels(kind)
	return &Counters{machines: prometheus.NewDesc("torpor_saved_machine_seconds_total",
		"Number of machines switched off by stops, multiplied by the seconds for which they were off.", labels, of)}
}

// NewPodCounters returns the counters of the CPU and memory that stops of a kind save.
func NewPodCounters(kind string) *Counters {
	labels, of := savedLabels(kind)
	return &Counters{
		cpu: prometheus.NewDesc("torpor_saved_cpu_seconds_total",
			"CPU requests, in cores, of the Pods removed by stops, multiplied by the seconds for which they did not run.", labels, of),
		memory: prometheus.NewDesc("torpor_saved_memory_byte_seconds_total",
			"Memory requests, in bytes, of the Pods removed by stops, multiplied by the seconds for which they did not run.", labels, of),
	}
}

func savedLabels(kind string) ([]string, prometheus.Labels) {
	return []string{"namespace", "name"}, prometheus.Labels{"kind": kind}
}

// Describe implements prometheus.Collector.
func (c *Counters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.machines, c.cpu, c.memory} {
		if d != nil {
			ch <- d
		}
	}
}

// UseClock sets the clock, unless it was set before in this process.
func (c *Counters) UseClock(of clock.PassiveClock) {
	c.meter.CompareAndSwap(nil, savings.NewMeter(savings.ReadInstants(of)))
}

// Observe returns the current time, and how long the stop in s has lasted. Each pass calls it, so that the object is
// known before its stop ends. now is used only if c is nil or has no clock.
func (c *Counters) Observe(uid types.UID, s *torporv1alpha1.Savings, now time.Time) savings.Moment {
	if c != nil {
		if meter := c.meter.Load(); meter != nil {
			return meter.Observe(uid, s)
		}
	}
	return savings.Moment{At: now, Counted: savings.Elapsed(s, now)}
}

// CollectSavings exports the counters of an object, if it was ever stopped. EndScrape must be called after the last
// object.
func (c *Counters) CollectSavings(ch chan<- prometheus.Metric, obj metav1.Object, s *torporv1alpha1.Savings) {
	meter := c.meter.Load()
	if s == nil || meter == nil {
		return
	}
	totals := meter.Read(obj.GetUID(), s)
	for of, value := range map[*prometheus.Desc]float64{c.machines: totals.MachineSeconds, c.cpu: totals.CPUSeconds, c.memory: totals.MemoryByteSeconds} {
		if of != nil {
			ch <- prometheus.MustNewConstMetric(of, prometheus.CounterValue, value, obj.GetNamespace(), obj.GetName())
		}
	}
}

// EndScrape ends a scrape of all objects.
func (c *Counters) EndScrape() {
	if meter := c.meter.Load(); meter != nil {
		meter.EndScrape()
	}
}
