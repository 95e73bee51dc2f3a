// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// list is a collector, so that the process's registry of metrics, where controller-runtime has its own, keeps it.
type list struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	groups []*Group
}

func registered() (*list, error) {
	all := &list{desc: prometheus.NewDesc("torpor_gate_groups", "Conditional groups of this process.", nil, nil)}
	err := metrics.Registry.Register(all)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := there.ExistingCollector.(*list); ok {
			return old, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register the list of conditional groups: %w", err)
	}
	return all, nil
}

// Describe names the metric.
func (all *list) Describe(to chan<- *prometheus.Desc) { to <- all.desc }

// Collect counts.
func (all *list) Collect(to chan<- prometheus.Metric) {
	all.mu.Lock()
	defer all.mu.Unlock()
	to <- prometheus.MustNewConstMetric(all.desc, prometheus.GaugeValue, float64(len(all.groups)))
}
