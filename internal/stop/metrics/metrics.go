// SPDX-License-Identifier: Apache-2.0

// Package metrics exports gauges of stops in effect, and counters of what stops save. They are the same for every kind
// that can be stopped: one query of a dashboard or an alert covers all kinds.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// Gauges are the gauges of one kind. They have no label with a user: only users who can read the object may
// see the requester.
type Gauges struct{ since, until *prometheus.Desc }

// NewGauges makes the gauges of a kind.
func NewGauges(kind string) *Gauges {
	labels, of := []string{"namespace", "name", "part"}, prometheus.Labels{"kind": kind}
	return &Gauges{
		since: prometheus.NewDesc("torpor_stop_since_timestamp_seconds", "Time at which a stop in effect was requested, in Unix time; absent for objects that are not stopped.", labels, of),
		until: prometheus.NewDesc("torpor_stop_until_timestamp_seconds", "Time at which a stop in effect ends by itself, in Unix time; absent for stops without an end.", labels, of),
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
