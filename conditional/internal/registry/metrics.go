// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/torpor-dev/torpor/conditional/internal/metrics"
)

// groupList is a collector, so that the process's registry of metrics, where controller-runtime has its own, keeps it.
type groupList struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	groups []*GroupEntry
}

func sharedList() (*groupList, error) {
	all := &groupList{desc: prometheus.NewDesc("torpor_gate_groups", "Conditional groups of this process.", nil, nil)}
	err := metrics.RegisterShared(&all)
	return all, err
}

// Describe names the metric.
func (all *groupList) Describe(to chan<- *prometheus.Desc) { to <- all.desc }

// Collect counts.
func (all *groupList) Collect(to chan<- prometheus.Metric) {
	all.mu.Lock()
	defer all.mu.Unlock()
	to <- prometheus.MustNewConstMetric(all.desc, prometheus.GaugeValue, float64(len(all.groups)))
}
