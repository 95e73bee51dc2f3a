// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/accounts"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
	"github.com/torpor-dev/torpor/internal/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/stopmetrics"
)

// Metrics shows the power state of every cluster straight from the cache, so that it is right after a restart and gone
// with the object, and counts what was done. One lives as long as the process; register it once.
type Metrics struct {
	cache       reconcile.ScrapedCache
	state       *prometheus.Desc
	transitions *prometheus.CounterVec
	requests    *prometheus.CounterVec
	decisions   *prometheus.CounterVec
	durations   *prometheus.HistogramVec
	trouble     *prometheus.Desc
	stops       *stopmetrics.Gauges
	wakeBy      *prometheus.Desc
	operations  *prometheus.Desc
	probes      *prometheus.Desc
	sources     atomic.Pointer[metricSources]
}

// metricSources are the services of the controller that runs.
type metricSources struct {
	accounts *accounts.Service
	pool     *targetcluster.Pool
}

// NewMetrics makes the metrics of this feature.
func NewMetrics() *Metrics {
	return &Metrics{
		stops: stopmetrics.NewGauges(hivev1.ClusterDeploymentKind().Kind),
		state: prometheus.NewDesc("torpor_cluster_power_state",
			"1 for the power state that a ClusterDeployment is in.", []string{"namespace", "name", "power_state"}, nil),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_cluster_transitions_total", Help: "Changes of a cluster that were told by an event, approvals left out, by reason.",
		}, []string{"reason"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_certificate_requests_approved_total", Help: "Certificate requests of nodes approved at a resume, by kind.",
		}, []string{"kind"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_certificate_requests_total", Help: "Certificate requests judged at a resume, by decision and the rule that decided.",
		}, []string{"decision", "rule"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "torpor_cluster_transition_seconds", Help: "How long whole hibernations and resumes took, by transition.",
			Buckets: []float64{15, 30, 60, 90, 120, 180, 300, 600, 1200, 3600},
		}, []string{"transition"}),
		trouble: prometheus.NewDesc("torpor_cluster_trouble",
			"1 for a ClusterDeployment whose condition Degraded or Stalled is True.", []string{"namespace", "name", "condition"}, nil),
		wakeBy: prometheus.NewDesc("torpor_cluster_wake_by_timestamp_seconds",
			"When a ClusterDeployment's first certificate expires without which it does not come back by itself, as it was last seen while it ran.", []string{"namespace", "name"}, nil),
		operations: prometheus.NewDesc("torpor_cloud_operations_total",
			"Looks at and orders to the clusters of an account, by operation and the class of their error; empty if there was none.", []string{"account", "operation", "error"}, nil),
		probes: prometheus.NewDesc("torpor_cluster_probes_total",
			"Looks at API servers of clusters, by whether they answered.", []string{"answered"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.state, m.trouble, m.wakeBy, m.operations, m.probes} {
		ch <- d
	}
	m.stops.Describe(ch)
	for _, c := range m.counted() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counted() {
		c.Collect(ch)
	}
	m.collectServices(ch)
	var list hivev1.ClusterDeploymentList
	if !m.cache.List(&list) {
		return
	}
	for i := range list.Items {
		cd := &list.Items[i]
		if cd.Status.PowerState != "" {
			ch <- prometheus.MustNewConstMetric(m.state, prometheus.GaugeValue, 1, cd.Namespace, cd.Name, cd.Status.PowerState)
		}
		m.stops.CollectStop(ch, cd, "machines", cd.Status.Stops)
		if check := cd.Status.HibernationCheck; check != nil && check.WakeBy != nil {
			ch <- prometheus.MustNewConstMetric(m.wakeBy, prometheus.GaugeValue, float64(check.WakeBy.Unix()), cd.Namespace, cd.Name)
		}
		for _, kind := range []string{hivev1.ClusterDegradedCondition, hivev1.ClusterStalledCondition} {
			if meta.IsStatusConditionTrue(cd.Status.Conditions, kind) {
				ch <- prometheus.MustNewConstMetric(m.trouble, prometheus.GaugeValue, 1, cd.Namespace, cd.Name, kind)
			}
		}
	}
}

// counted are the metrics that keep their own counts.
func (m *Metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{m.transitions, m.requests, m.decisions, m.durations}
}

// collectServices shows what the services of the controller that runs have counted.
func (m *Metrics) collectServices(ch chan<- prometheus.Metric) {
	from := m.sources.Load()
	if from == nil {
		return
	}
	for operation, count := range from.accounts.CountCalls() {
		ch <- prometheus.MustNewConstMetric(m.operations, prometheus.CounterValue, count, operation.Account, operation.Name, string(operation.ErrorClass))
	}
	counts := from.pool.ReadCounts()
	ch <- prometheus.MustNewConstMetric(m.probes, prometheus.CounterValue, counts.Answers, "true")
	ch <- prometheus.MustNewConstMetric(m.probes, prometheus.CounterValue, counts.Silences, "false")
}

// finishedTransition is a hibernation or a resume that is over, and how long it took.
type finishedTransition struct {
	name string
	took time.Duration
}

// finishedTransitions returns what is over with a new record.
func finishedTransitions(before, after *hivev1.HibernationRecord) []finishedTransition {
	var finished []finishedTransition
	if after == nil {
		return nil
	}
	if after.AsleepAt != nil && (before == nil || before.AsleepAt == nil) && after.ResumeStartedAt == nil {
		finished = append(finished, finishedTransition{"hibernate", after.AsleepAt.Sub(after.SleepStartedAt.Time)})
	}
	if after.ResumedAt != nil && before != nil && before.ResumedAt == nil && after.ResumeStartedAt != nil {
		finished = append(finished, finishedTransition{"resume", after.ResumedAt.Sub(after.ResumeStartedAt.Time)})
	}
	return finished
}

func (m *Metrics) observeDurations(finished []finishedTransition) {
	for _, f := range finished {
		m.durations.WithLabelValues(f.name).Observe(f.took.Seconds())
	}
}

func (m *Metrics) countTransitions(events []decision.Event, decided []csr.Verdict) {
	for _, e := range events {
		if e.Reason != hibernation.CertificatesApproved && e.Reason != hibernation.CertificateRequestsLeft {
			m.transitions.WithLabelValues(e.Reason).Inc()
		}
	}
	for _, v := range decided {
		m.decisions.WithLabelValues(string(v.Decision), v.Rule).Inc()
		if v.Decision == csr.Approve {
			m.requests.WithLabelValues(string(v.Kind)).Inc()
		}
	}
}
