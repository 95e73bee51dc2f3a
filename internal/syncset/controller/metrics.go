// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/syncset"
)

// Metrics shows of every ClusterSync straight from the cache how far it is, so that it is right after a restart and gone with the object,
// and counts what was done at clusters. One lives as long as the process; register it once.
type Metrics struct {
	cache    reconcile.ScrapedCache
	progress *prometheus.Desc
	jobs     *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewMetrics makes the metrics of this feature.
func NewMetrics() *Metrics {
	return &Metrics{
		progress: prometheus.NewDesc("torpor_cluster_sync",
			"1 for the reason of the condition Synced of a ClusterSync.", []string{"namespace", "name", "reason"}, nil),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_cluster_sync_jobs_total", Help: "Connections to clusters to apply sets, by result: applied, refused or no answer.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "torpor_cluster_sync_job_seconds", Help: "How long a connection to a cluster to apply sets took.",
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

// countJob counts what became of a job.
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
