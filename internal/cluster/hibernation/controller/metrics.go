// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/cloudcalls"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/csr"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	stopmetrics "github.com/torpor-dev/torpor/internal/stop/metrics"
)

// Metrics exposes the power state of every cluster directly from the cache. These gauges are therefore correct after a
// restart, and disappear with the object. Metrics also counts transitions, certificate requests and calls. Register one
// per process.
type Metrics struct {
	cache       reconcile.ScrapedCache
	state       *prometheus.Desc
	transitions *prometheus.CounterVec
	requests    *prometheus.CounterVec
	decisions   *prometheus.CounterVec
	durations   *prometheus.HistogramVec
	trouble     *prometheus.Desc
	stops       *stopmetrics.Gauges
	saved       *stopmetrics.Counters
	wakeBy      *prometheus.Desc
	operations  *prometheus.Desc
	probes      *prometheus.Desc
	sources     atomic.Pointer[metricSources]
}

// metricSources are the services of the running controller.
type metricSources struct {
	accounts *cloudcalls.Service
	pool     *targetcluster.Pool
}

// NewMetrics returns the metrics of this feature.
func NewMetrics() *Metrics {
	return &Metrics{
		stops: stopmetrics.NewGauges(hivev1.ClusterDeploymentKind().Kind),
		saved: stopmetrics.NewMachineCounters(hivev1.ClusterDeploymentKind().Kind),
		state: prometheus.NewDesc("torpor_cluster_power_state",
			"1 for the current power state of a ClusterDeployment.", []string{"namespace", "name", "power_state"}, nil),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_cluster_transitions_total", Help: "Number of cluster state transitions, by reason.",
		}, []string{"reason"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_certificate_requests_approved_total", Help: "Number of certificate requests of nodes that were approved at a resume, by kind.",
		}, []string{"kind"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_certificate_requests_total", Help: "Number of certificate requests that were evaluated at a resume, by decision and rule.",
		}, []string{"decision", "rule"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "torpor_cluster_transition_seconds", Help: "Duration of completed hibernations and resumes, by transition.",
			Buckets: []float64{15, 30, 60, 90, 120, 180, 300, 600, 1200, 3600},
		}, []string{"transition"}),
		trouble: prometheus.NewDesc("torpor_cluster_trouble",
			"1 if the condition Degraded or Stalled of a ClusterDeployment is True.", []string{"namespace", "name", "condition"}, nil),
		wakeBy: prometheus.NewDesc("torpor_cluster_wake_by_timestamp_seconds",
			"Earliest expiry, in Unix time, of the certificates that a cluster needs to resume without help from a user, as last observed while the cluster ran.", []string{"namespace", "name"}, nil),
		operations: prometheus.NewDesc("torpor_cloud_operations_total",
			"Number of requests to a cloud account that list, stop, start or terminate machines, by operation and error class; the class is empty for a success.", []string{"account", "operation", "error"}, nil),
		probes: prometheus.NewDesc("torpor_cluster_probes_total",
			"Number of probes of clusters' API servers, by whether the server answered.", []string{"answered"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.state, m.trouble, m.wakeBy, m.operations, m.probes} {
		ch <- d
	}
	m.stops.Describe(ch)
	m.saved.Describe(ch)
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
		m.saved.CollectSavings(ch, cd, cd.Status.Savings)
		if check := cd.Status.HibernationCheck; check != nil && check.WakeBy != nil {
			ch <- prometheus.MustNewConstMetric(m.wakeBy, prometheus.GaugeValue, float64(check.WakeBy.Unix()), cd.Namespace, cd.Name)
		}
		for _, kind := range []string{hivev1.ClusterDegradedCondition, hivev1.ClusterStalledCondition} {
			if meta.IsStatusConditionTrue(cd.Status.Conditions, kind) {
				ch <- prometheus.MustNewConstMetric(m.trouble, prometheus.GaugeValue, 1, cd.Namespace, cd.Name, kind)
			}
		}
	}
	m.saved.EndScrape()
}

// counted returns the metrics that store their own counts.
func (m *Metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{m.transitions, m.requests, m.decisions, m.durations}
}

// collectServices collects the counts of the running controller's services.
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

// finishedTransition is a completed hibernation or resume and its duration.
type finishedTransition struct {
	name string
	took time.Duration
}

// finishedTransitions returns the transitions that a new record completes.
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
