// SPDX-License-Identifier: Apache-2.0

package leaderelection

import "github.com/prometheus/client_golang/prometheus"

// partMetrics are the metrics of an election.
type partMetrics struct {
	election *Election
	isActive func() bool
	acts     *prometheus.Desc
}

// NewMetrics returns the metrics of an election. isActive reports whether the installation is the active one. The
// caller must register them.
func NewMetrics(e *Election, isActive func() bool) prometheus.Collector {
	return partMetrics{e, isActive, prometheus.NewDesc(
		"torpor_installation_acts", "1 if this replica leads the part of the controllers and its installation is the active installation of the cluster.", []string{"part"}, nil,
	)}
}

// Describe implements prometheus.Collector.
func (m partMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.acts }

// Collect implements prometheus.Collector.
func (m partMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, p := range m.election.parts {
		acts := 0.0
		if p.isActing() && m.isActive() {
			acts = 1
		}
		ch <- prometheus.MustNewConstMetric(m.acts, prometheus.GaugeValue, acts, p.part)
	}
}
