// SPDX-License-Identifier: Apache-2.0

package page

import "github.com/prometheus/client_golang/prometheus"

// Metrics count who looks on. They have no label of a user.
type Metrics struct {
	streams prometheus.Gauge
	refused prometheus.Counter
}

// NewMetrics counts from 0.
func NewMetrics() *Metrics {
	return &Metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "torpor_page_streams", Help: "Browsers that look at the page now."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "torpor_page_streams_refused_total", Help: "Browsers that were shown the page without what changes, because too many look on."}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.streams.Describe(ch)
	m.refused.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.streams.Collect(ch)
	m.refused.Collect(ch)
}
