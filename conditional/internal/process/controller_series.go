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

// DeleteQueueGauges deletes what tells how a controller's queue is now: controller-runtime counts for ever what a stop has dropped.
func (all *Registry) DeleteQueueGauges(controller string) {
	all.deleteSeries(controller, "workqueue_depth", "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds")
}

// DeleteControllerSeries deletes all series of a controller that will not start again.
func (all *Registry) DeleteControllerSeries(controller string) { all.deleteSeries(controller) }

// deleteSeries deletes the controller's series of these metrics, or of all.
func (all *Registry) deleteSeries(controller string, only ...string) {
	for name, v := range all.vectors {
		if len(only) == 0 || slices.Contains(only, name) {
			v.DeletePartialMatch(prometheus.Labels{"controller": controller})
		}
	}
}

// findControllerVectors finds the vectors of controller-runtime with series of each controller, by name. controller-runtime keeps them
// to itself and deletes nothing, but its registry hands out what is there already to who registers the like of it.
func findControllerVectors() map[string]seriesDeleter {
	vectors := map[string]seriesDeleter{}
	for _, desc := range describeAll(metrics.Registry) {
		text := desc.String() // The only way to its name and its labels.
		name, _, _ := strings.Cut(strings.TrimPrefix(text, `Desc{fqName: "`), `"`)
		_, labels, _ := strings.Cut(text, "variableLabels: {")
		isOfControllers := strings.HasPrefix(name, "workqueue_") || strings.HasPrefix(name, "controller_runtime_")
		if !isOfControllers || !slices.Contains(strings.Split(strings.TrimRight(labels, "}"), ","), "controller") {
			continue
		}
		there, _ := errors.AsType[prometheus.AlreadyRegisteredError](metrics.Registry.Register(descOnly{desc}))
		if v, ok := there.ExistingCollector.(seriesDeleter); ok {
			vectors[name] = v
		}
	}
	return vectors
}

// describeAll is empty if somebody has put a registry of another kind in the place of controller-runtime's.
func describeAll(registry prometheus.Registerer) (all []*prometheus.Desc) {
	described, ok := registry.(prometheus.Collector)
	if !ok {
		return nil
	}
	to := make(chan *prometheus.Desc)
	go func() {
		described.Describe(to)
		close(to)
	}()
	for desc := range to {
		all = append(all, desc)
	}
	return all
}

// descOnly is a collector that equals another one.
type descOnly struct{ desc *prometheus.Desc }

func (d descOnly) Describe(to chan<- *prometheus.Desc) { to <- d.desc }

func (descOnly) Collect(chan<- prometheus.Metric) {}
