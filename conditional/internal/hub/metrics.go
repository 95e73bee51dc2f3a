// SPDX-License-Identifier: Apache-2.0

package hub

import "github.com/prometheus/client_golang/prometheus"

// gauge is one number that every hub has; the process shows their sum.
type gauge struct {
	desc *prometheus.Desc
	of   func(*Hub) int
}

func gauges() []gauge {
	return []gauge{
		{
			prometheus.NewDesc("torpor_gate_api_servers", "API servers that conditional groups look at.", nil, nil),
			func(*Hub) int { return 1 },
		},
		{
			prometheus.NewDesc("torpor_gate_active_informers", "Informers that run for conditional groups.", nil, nil),
			func(h *Hub) int { return h.Informers.Informers() },
		},
		{
			prometheus.NewDesc("torpor_gate_informer_refs", "Uses of informers by conditional groups; groups share an informer.", nil, nil),
			func(h *Hub) int { return h.Informers.Leases() },
		},
	}
}

// Describe names the metrics.
func (all *hubs) Describe(to chan<- *prometheus.Desc) {
	for _, g := range all.gauges {
		to <- g.desc
	}
}

// Collect counts.
func (all *hubs) Collect(to chan<- prometheus.Metric) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, g := range all.gauges {
		sum := 0
		for _, h := range all.of {
			sum += g.of(h)
		}
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(sum))
	}
}
