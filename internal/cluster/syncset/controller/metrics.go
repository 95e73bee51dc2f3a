// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/syncset"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Metrics reports the progress of every ClusterSync directly from the cache. These gauges are therefore correct after a
// restart, and disappear with the object. Metrics also counts the connections to clusters that apply SyncSets, by
// result, and measures their duration. Register one per process.
type Metrics struct {
	cache    reconcile.ScrapedCache
	progress *prometheus.Desc
	jobs     *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewMetrics returns the metrics of this feature.
func NewMetrics() *Metrics {
	return &Metrics{
		progress: prometheus.NewDesc("torpor_cluster_sync",
			"1 for the current reason of the condition Synced of a ClusterSync.", []string{"namespace", "name", "reason"}, nil),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_cluster_sync_jobs_total", Help: "Number of connections to clusters for SyncSets, by result: applied, refused or no answer.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "torpor_cluster_sync_job_seconds", Help: "Duration of connections to clusters for SyncSets.",
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
	var list hiveinternalv1alpha1.ClusterSyncList
	if !m.cache.List(&list) {
		return
	}
	for i := range list.Items {
		cs := &list.Items[i]
		if synced := meta.FindStatusCondition(cs.Status.Conditions, hiveinternalv1alpha1.ClusterSyncedCondition); synced != nil {
			ch <- prometheus.MustNewConstMetric(m.progress, prometheus.GaugeValue, 1, cs.Namespace, cs.Name, synced.Reason)
		}
	}
}

// countJob counts the result of a job.
func (m *Metrics) countJob(answer *syncset.Answer, took time.Duration) {
	result := "applied"
	switch {
	case answer.NoAnswer != "":
		result = "no answer"
	case hasFailed(answer):
		result = "refused"
	}
	m.jobs.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}
