// SPDX-License-Identifier: Apache-2.0

// Package stopmetrics has the gauges of stops that go on, which are the same for every kind that can be stopped: dashboards and alerts ask
// once about all of them.
package stopmetrics

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// Gauges are those of one kind. They have no label of a person: who stopped something is for who may see the object.
type Gauges struct{ since, until *prometheus.Desc }

// NewGauges makes the gauges of a kind.
func NewGauges(kind string) *Gauges {
	labels, of := []string{"namespace", "name", "part"}, prometheus.Labels{"kind": kind}
	return &Gauges{
		since: prometheus.NewDesc("torpor_stop_since_timestamp_seconds", "When a stop that goes on was asked for, in Unix time; nothing of what is not stopped.", labels, of),
		until: prometheus.NewDesc("torpor_stop_until_timestamp_seconds", "When a stop that goes on is to end by itself, in Unix time; nothing of one that somebody ends.", labels, of),
	}
}

// Describe says which gauges there are.
func (g *Gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.since
	ch <- g.until
}

// CollectStop shows the stop of a part of an object, if one goes on.
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
