// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/torpor-dev/torpor/conditional/internal/metrics"
)

// list is a collector, so that the process's registry of metrics, where controller-runtime has its own, keeps it.
type list struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	groups []*Group
}

func registered() (*list, error) {
	all := &list{desc: prometheus.NewDesc("torpor_gate_groups", "Conditional groups of this process.", nil, nil)}
	err := metrics.Share(&all)
	return all, err
}

// Describe names the metric.
func (all *list) Describe(to chan<- *prometheus.Desc) { to <- all.desc }

// Collect counts.
func (all *list) Collect(to chan<- prometheus.Metric) {
	all.mu.Lock()
	defer all.mu.Unlock()
	to <- prometheus.MustNewConstMetric(all.desc, prometheus.GaugeValue, float64(len(all.groups)))
}
