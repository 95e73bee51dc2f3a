// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	stopmetrics "github.com/torpor-dev/torpor/internal/stop/metrics"
)

const scrapeTimeout = 5 * time.Second

// Metrics exports the state of every MySQLCluster from the cache, so values are correct after a restart and disappear
// with the object. It also exports the last observation, and counts passes, switchovers, failovers and clones. One
// instance exists for the lifetime of the process, and is registered once.
type Metrics struct {
	readers atomic.Pointer[cacheReaders]

	clusteringStopped, reconciliationStopped, available, healthy, replicas, readyReplicas, errantReplicas, overdue *prometheus.Desc
	checks, errors, switchovers, failovers                                                                         *prometheus.CounterVec
	processing                                                                                                     *prometheus.HistogramVec
	ongoing                                                                                                        *stopmetrics.Gauges
	// state, lag and waiting come from the last observation. Observations continue while clustering is stopped.
	state, lag, waiting *prometheus.GaugeVec
	// These metrics have the names that MOCO's agent uses for the metrics of each Pod.
	delay, cloning            *prometheus.GaugeVec
	cloneCount, cloneFailures *prometheus.CounterVec
	cloneDuration             *prometheus.SummaryVec
}

// cacheReaders holds the caches of a running controller, and its clock.
type cacheReaders struct {
	clusters, pods client.Reader
	clock          clock.PassiveClock
}

// NewMetrics creates the metrics of this feature. Metrics that MOCO also has keep their names.
func NewMetrics() *Metrics {
	labels := []string{"name", "namespace"}
	instanceLabels := []string{"name", "namespace", "index"}
	return &Metrics{
		delay: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "moco_instance_replication_delay_seconds", Help: "Age in seconds of the transaction that the replica applies; absent while the age cannot be measured",
		}, instanceLabels),
		cloning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "moco_instance_clone_in_progress", Help: "1 while another server is cloned to the instance",
		}, instanceLabels),
		cloneCount: newAgentCounter(prometheus.CounterOpts{
			Name: "moco_instance_clone_count", Help: "Number of clone operations of the instance that have ended",
		}, instanceLabels),
		cloneFailures: newAgentCounter(prometheus.CounterOpts{
			Name: "moco_instance_clone_failure_count", Help: "Number of clone operations of the instance that have failed",
		}, instanceLabels),
		cloneDuration: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name: "moco_instance_clone_duration_seconds", Help: "Duration of the clone operations of the instance",
		}, instanceLabels),
		ongoing:               stopmetrics.NewGauges(mocov1beta2.MySQLClusterKind().Kind),
		clusteringStopped:     prometheus.NewDesc("moco_cluster_clustering_stopped", "1 if clustering is stopped for the cluster", labels, nil),
		reconciliationStopped: prometheus.NewDesc("moco_cluster_reconciliation_stopped", "1 if reconciliation is stopped for the cluster", labels, nil),
		available: prometheus.NewDesc("moco_cluster_available",
			"1 if the condition Available is True, or clustering is stopped and the observed state is Healthy or Degraded", labels, nil),
		healthy: prometheus.NewDesc("moco_cluster_healthy",
			"1 if the condition Healthy is True, or clustering is stopped and the observed state is Healthy", labels, nil),
		replicas:       prometheus.NewDesc("moco_cluster_replicas", "Number of instances of the cluster", labels, nil),
		readyReplicas:  prometheus.NewDesc("moco_cluster_ready_replicas", "Number of ready Pods of the cluster", labels, nil),
		errantReplicas: prometheus.NewDesc("moco_cluster_errant_replicas", "Number of instances that have errant transactions", labels, nil),
		overdue: prometheus.NewDesc("torpor_mysql_stop_overdue_seconds",
			"Seconds since the requested end of a stop that is still in effect; 0 if there is no such stop", labels, nil),
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "torpor_mysql_state", Help: "1 for the last observed state of the cluster, which is updated even while clustering is stopped",
		}, []string{"name", "namespace", "state"}),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "torpor_mysql_instance_lag_seconds", Help: "Minimum age in seconds of the data that readers of the instance see; it grows while the instance does not replicate",
		}, []string{"name", "namespace", "ordinal"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "torpor_mysql_waiting_sessions", Help: "Number of sessions of the primary that wait for the acknowledgement of a replica",
		}, labels),
		processing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "moco_cluster_processing_time_seconds", Help: "Duration in seconds of reconciliations of the cluster",
			Buckets: []float64{.1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 30},
		}, labels),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_checks_total", Help: "Number of reconciliations of the cluster",
		}, labels),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_errors_total", Help: "Number of failed reconciliations of the cluster",
		}, labels),
		switchovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_switchover_total", Help: "Number of switchovers in the cluster",
		}, labels),
		failovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_failover_total", Help: "Number of failovers in the cluster",
		}, labels),
	}
}

// newAgentCounter creates a counter with a name that MOCO's agent uses. These names do not end in _total.
func newAgentCounter(opts prometheus.CounterOpts, labels []string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(opts, labels)
}

func (m *Metrics) gauges() []*prometheus.MetricVec {
	return []*prometheus.MetricVec{m.state.MetricVec, m.lag.MetricVec, m.waiting.MetricVec, m.delay.MetricVec, m.cloning.MetricVec}
}

// vectors returns the metrics that keep their values between scrapes. All of them have the labels name and namespace.
func (m *Metrics) vectors() []*prometheus.MetricVec {
	return append(m.gauges(),
		m.checks.MetricVec, m.errors.MetricVec, m.switchovers.MetricVec, m.failovers.MetricVec,
		m.cloneCount.MetricVec, m.cloneFailures.MetricVec, m.cloneDuration.MetricVec, m.processing.MetricVec)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.clusteringStopped, m.reconciliationStopped, m.available, m.healthy, m.replicas, m.readyReplicas, m.errantReplicas, m.overdue,
	} {
		ch <- d
	}
	m.ongoing.Describe(ch)
	for _, v := range m.vectors() {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, v := range m.vectors() {
		v.Collect(ch)
	}
	from := m.readers.Load()
	if from == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) // Collect has no context parameter.
	defer cancel()
	var clusters mocov1beta2.MySQLClusterList
	var pods corev1.PodList
	if err := from.clusters.List(ctx, &clusters); err != nil {
		return
	}
	if err := from.pods.List(ctx, &pods); err != nil {
		return
	}
	readyPods := map[types.NamespacedName]int{}
	for i := range pods.Items {
		if p := &pods.Items[i]; isReady(p) {
			readyPods[types.NamespacedName{Namespace: p.Namespace, Name: p.Labels[mocov1beta2.InstanceLabel]}]++
		}
	}
	for i := range clusters.Items {
		m.collectCluster(ch, &clusters.Items[i], readyPods, from.clock.Now())
	}
}

func (m *Metrics) collectCluster(ch chan<- prometheus.Metric, cluster *mocov1beta2.MySQLCluster, readyPods map[types.NamespacedName]int, now time.Time) {
	switches := mysqlswitches.Read(cluster, now)
	overdue := switches.OverdueDuration(now)
	m.ongoing.CollectStop(ch, cluster, "clustering", switches.Clustering.Records)
	m.ongoing.CollectStop(ch, cluster, "reconciliation", switches.Reconciliation.Records)
	m.ongoing.CollectStop(ch, cluster, "instances", switches.Instances.Records)
	// While clustering is stopped, the conditions are Unknown, so the metrics use the observed state. Alerts then fire
	// only for a cluster whose state is not healthy.
	looks := func(kind string, states ...clustering.ClusterState) bool {
		p := cluster.Status.Pause
		isSeen := p != nil && slices.Contains(states, clustering.ClusterState(p.State))
		return isSeen || meta.IsStatusConditionTrue(cluster.Status.Conditions, kind)
	}
	for _, gauge := range []struct {
		of    *prometheus.Desc
		value float64
	}{
		{m.clusteringStopped, boolToFloat(stopRecord(cluster) != nil)},
		{m.reconciliationStopped, boolToFloat(cluster.ReconciliationStopped())},
		{m.available, boolToFloat(looks(mocov1beta2.AvailableCondition, clustering.StateHealthy, clustering.StateDegraded))},
		{m.healthy, boolToFloat(looks(mocov1beta2.HealthyCondition, clustering.StateHealthy))},
		{m.replicas, float64(cluster.InstanceCount())},
		{m.readyReplicas, float64(readyPods[client.ObjectKeyFromObject(cluster)])},
		{m.errantReplicas, float64(cluster.Status.ErrantReplicas)},
		{m.overdue, overdue.Seconds()},
	} {
		ch <- prometheus.MustNewConstMetric(gauge.of, prometheus.GaugeValue, gauge.value, cluster.Name, cluster.Namespace)
	}
}

func boolToFloat(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

func (m *Metrics) useReaders(r cacheReaders) { m.readers.Store(&r) }

// countPass counts a pass whose status was saved, and records its duration.
func (m *Metrics) countPass(name types.NamespacedName, events []decision.Event, failed bool, took time.Duration) {
	m.processing.WithLabelValues(name.Name, name.Namespace).Observe(took.Seconds())
	m.checks.WithLabelValues(name.Name, name.Namespace).Inc()
	errors := m.errors.WithLabelValues(name.Name, name.Namespace)
	if failed {
		errors.Inc()
	}
	byReason := map[string]prometheus.Counter{
		clustering.EventSwitchOver: m.switchovers.WithLabelValues(name.Name, name.Namespace),
		clustering.EventFailOver:   m.failovers.WithLabelValues(name.Name, name.Namespace),
	}
	for _, e := range events {
		if c := byReason[e.Reason]; c != nil {
			c.Inc()
		}
	}
}

// showLook exports the results of an observation.
func (m *Metrics) showLook(name types.NamespacedName, seen *observation, plan clustering.Plan) {
	dropValues(m.gauges(), name)
	m.state.WithLabelValues(name.Name, name.Namespace, string(plan.State)).Set(1)
	for i, r := range plan.Instances {
		m.lag.WithLabelValues(name.Name, name.Namespace, strconv.Itoa(i)).Set(r.Staleness.Seconds())
	}
	for i, s := range seen.Instances {
		labels := []string{name.Name, name.Namespace, strconv.Itoa(i)}
		m.cloning.WithLabelValues(labels...).Set(boolToFloat(s.Clone == clustering.Cloning))
		_, _ = m.cloneCount.WithLabelValues(labels...), m.cloneFailures.WithLabelValues(labels...) // Increases are counted only in series that exist.
		if i != seen.Primary && s.Channel.Present && s.Channel.Lag >= 0 {
			m.delay.WithLabelValues(labels...).Set(s.Channel.Lag.Seconds())
		}
	}
	waiting := 0
	if seen.Primary != clustering.NoInstance && seen.Primary < len(seen.Instances) {
		waiting = seen.Instances[seen.Primary].SemiSync.Waiting
	}
	m.waiting.WithLabelValues(name.Name, name.Namespace).Set(float64(waiting))
}

// countClone counts a clone that has ended.
func (m *Metrics) countClone(name types.NamespacedName, i int, took time.Duration, err error) {
	labels := []string{name.Name, name.Namespace, strconv.Itoa(i)}
	m.cloneCount.WithLabelValues(labels...).Inc()
	m.cloneDuration.WithLabelValues(labels...).Observe(took.Seconds())
	failures := m.cloneFailures.WithLabelValues(labels...)
	if err != nil {
		failures.Inc()
	}
}

// dropValues removes the values of a cluster.
func dropValues(vectors []*prometheus.MetricVec, name types.NamespacedName) {
	for _, v := range vectors {
		v.DeletePartialMatch(prometheus.Labels{"name": name.Name, "namespace": name.Namespace})
	}
}

// forgetCluster removes the values of a deleted cluster.
func (m *Metrics) forgetCluster(name types.NamespacedName) { dropValues(m.vectors(), name) }
