// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// seriesDeleter is a vector of series.
type seriesDeleter interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

// allVectors is how many vectors controller-runtime has with series of each controller. One is found once it has a series.
const allVectors = 15

// DeleteQueueGauges deletes what tells how a controller's queue is now: controller-runtime counts for ever what a stop has dropped.
func (all *Registry) DeleteQueueGauges(controller string) {
	all.deleteSeries(controller, "workqueue_depth", "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds")
}

// DeleteControllerSeries deletes all series of a controller that will not start again.
func (all *Registry) DeleteControllerSeries(controller string) { all.deleteSeries(controller) }

// deleteSeries deletes the controller's series of these metrics, or of all.
func (all *Registry) deleteSeries(controller string, only ...string) {
	all.vectorsMu.Lock()
	defer all.vectorsMu.Unlock()
	if len(all.vectors) < allVectors {
		all.findVectors()
	}
	for name, v := range all.vectors {
		if len(only) == 0 || slices.Contains(only, name) {
			v.DeletePartialMatch(prometheus.Labels{"controller": controller})
		}
	}
}

// findVectors finds the vectors of controller-runtime, which keeps them to itself and deletes nothing. The registry hands out what is
// there already to who registers the like of it.
func (all *Registry) findVectors() {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return // The metrics page shows this error, too.
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "workqueue_") && !strings.HasPrefix(f.GetName(), "controller_runtime_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if !slices.Contains(labels, "controller") {
			continue
		}
		like := descOnly{prometheus.NewDesc(f.GetName(), f.GetHelp(), labels, nil)}
		there, _ := errors.AsType[prometheus.AlreadyRegisteredError](metrics.Registry.Register(like))
		if v, ok := there.ExistingCollector.(seriesDeleter); ok {
			all.vectors[f.GetName()] = v
		}
	}
}

// descOnly is a collector that equals another one.
type descOnly struct{ desc *prometheus.Desc }

func (d descOnly) Describe(to chan<- *prometheus.Desc) { to <- d.desc }

func (descOnly) Collect(chan<- prometheus.Metric) {}
