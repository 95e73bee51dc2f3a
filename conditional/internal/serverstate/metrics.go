// SPDX-License-Identifier: Apache-2.0

package serverstate

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// stateGauge is one number over all API servers of the process.
type stateGauge struct {
	desc  *prometheus.Desc
	value func(map[stateKey]*SharedState) int
}

func totalGauges() []stateGauge {
	return []stateGauge{
		{
			prometheus.NewDesc("torpor_gate_api_servers", "API servers that conditional groups look at.", nil, nil),
			func(hubs map[stateKey]*SharedState) int {
				servers := map[*rest.Config]bool{}
				for k := range hubs {
					servers[k.cfg] = true
				}
				return len(servers)
			},
		},
		{
			prometheus.NewDesc("torpor_gate_active_informers", "Informers that run for conditional groups.", nil, nil),
			sumStates(func(h *SharedState) int { return h.Informers.InformerCount() }),
		},
		{
			prometheus.NewDesc("torpor_gate_informer_refs", "Uses of informers by conditional groups; groups share an informer.", nil, nil),
			sumStates(func(h *SharedState) int { return h.Informers.LeaseCount() }),
		},
	}
}

func sumStates(of func(*SharedState) int) func(map[stateKey]*SharedState) int {
	return func(hubs map[stateKey]*SharedState) (total int) {
		for _, h := range hubs {
			total += of(h)
		}
		return total
	}
}

func newProbesDesc() *prometheus.Desc {
	return prometheus.NewDesc("torpor_gate_probes_total", "Requests by which detectors looked for kinds.", []string{"result"}, nil)
}

// Describe names the metrics.
func (all *stateCollector) Describe(to chan<- *prometheus.Desc) {
	for _, g := range all.totals {
		to <- g.desc
	}
	to <- all.probes
}

// Collect counts.
func (all *stateCollector) Collect(to chan<- prometheus.Metric) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, g := range all.totals {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value(all.states)))
	}
	total := map[string]uint64{}
	for _, h := range all.states {
		for result, count := range h.Detector.ProbeCounts() {
			total[result] += count
		}
	}
	for result, count := range total {
		to <- prometheus.MustNewConstMetric(all.probes, prometheus.CounterValue, float64(count), result)
	}
}
