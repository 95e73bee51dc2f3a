// SPDX-License-Identifier: Apache-2.0

package serverstate

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// gauge is one number over all hubs of the process.
type gauge struct {
	desc *prometheus.Desc
	of   func(map[key]*Hub) int
}

func totals() []gauge {
	return []gauge{
		{
			prometheus.NewDesc("torpor_gate_api_servers", "API servers that conditional groups look at.", nil, nil),
			func(hubs map[key]*Hub) int {
				servers := map[*rest.Config]bool{}
				for k := range hubs {
					servers[k.cfg] = true
				}
				return len(servers)
			},
		},
		{
			prometheus.NewDesc("torpor_gate_active_informers", "Informers that run for conditional groups.", nil, nil),
			sum(func(h *Hub) int { return h.Informers.Informers() }),
		},
		{
			prometheus.NewDesc("torpor_gate_informer_refs", "Uses of informers by conditional groups; groups share an informer.", nil, nil),
			sum(func(h *Hub) int { return h.Informers.Leases() }),
		},
	}
}

func sum(of func(*Hub) int) func(map[key]*Hub) int {
	return func(hubs map[key]*Hub) (total int) {
		for _, h := range hubs {
			total += of(h)
		}
		return total
	}
}

func probes() *prometheus.Desc {
	return prometheus.NewDesc("torpor_gate_probes_total", "Requests by which detectors looked for kinds.", []string{"result"}, nil)
}

// Describe names the metrics.
func (all *hubs) Describe(to chan<- *prometheus.Desc) {
	for _, g := range all.totals {
		to <- g.desc
	}
	to <- all.probes
}

// Collect counts.
func (all *hubs) Collect(to chan<- prometheus.Metric) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, g := range all.totals {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.of(all.of)))
	}
	total := map[string]uint64{}
	for _, h := range all.of {
		for result, count := range h.Detector.Probes() {
			total[result] += count
		}
	}
	for result, count := range total {
		to <- prometheus.MustNewConstMetric(all.probes, prometheus.CounterValue, float64(count), result)
	}
}
