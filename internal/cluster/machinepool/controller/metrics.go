// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/machinepool"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Metrics reports the progress of every MachinePool directly from the cache. These gauges are therefore correct after a
// restart, and disappear with the object. Metrics also counts the jobs, by result, and measures their duration.
// Register one per process.
type Metrics struct {
	cache    reconcile.ScrapedCache
	progress *prometheus.Desc
	jobs     *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewMetrics returns the metrics of this feature.
func NewMetrics() *Metrics {
	return &Metrics{
		progress: prometheus.NewDesc("torpor_machine_pool",
			"1 for the current reason of the condition Synced of a MachinePool.", []string{"namespace", "name", "reason"}, nil),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_machine_pool_jobs_total", Help: "Number of connections to clusters for MachinePools, by result: changed, unchanged, refused, cut short or no answer.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "torpor_machine_pool_job_seconds", Help: "Duration of connections to clusters for MachinePools.",
			Buckets: []float64{0.1, 0.3, 1, 3, 10, 30, 60, 300, 600},
		}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.progress
	m.jobs.Describe(ch)
	m.duration.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.jobs.Collect(ch)
	m.duration.Collect(ch)
	var list hivev1.MachinePoolList
	if !m.cache.List(&list) {
		return
	}
	for i := range list.Items {
		pool := &list.Items[i]
		if synced := meta.FindStatusCondition(pool.Status.Conditions, hivev1.MachinePoolSyncedCondition); synced != nil {
			ch <- prometheus.MustNewConstMetric(m.progress, prometheus.GaugeValue, 1, pool.Namespace, pool.Name, synced.Reason)
		}
	}
}

// countJob counts the result of a job.
func (m *Metrics) countJob(answer *machinepool.Answer, took time.Duration) {
	result := "unchanged"
	switch {
	case answer.NoAnswer != "":
		result = "no answer"
	case answer.Refusal != nil:
		result = "refused"
	case !answer.IsComplete:
		result = "cut short"
	case len(answer.Changes) > 0:
		result = "changed"
	}
	m.jobs.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}
