// SPDX-License-Identifier: Apache-2.0

package page

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts the connected and the refused browsers. There is no label for the user.
type Metrics struct {
	streams prometheus.Gauge
	refused prometheus.Counter
}

// NewMetrics returns metrics that start at zero.
func NewMetrics() *Metrics {
	return &Metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "torpor_page_streams", Help: "Number of browsers that are connected to the page."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "torpor_page_streams_refused_total", Help: "Number of browsers that got the page without live updates because too many were connected."}),
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
