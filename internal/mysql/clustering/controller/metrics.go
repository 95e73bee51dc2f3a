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
	"github.com/torpor-dev/torpor/internal/mysql/stops"
	"github.com/torpor-dev/torpor/internal/stopmetrics"
)

const scrapeTimeout = 5 * time.Second

// Metrics shows every MySQLCluster straight from the cache, so that it is right after a restart and gone with the object,
// and counts what was done. One lives as long as the process; register it once.
type Metrics struct {
	readers atomic.Pointer[cacheReaders]

	clusteringStopped, reconciliationStopped, available, healthy, replicas, readyReplicas, errantReplicas, overdue *prometheus.Desc
	checks, errors, switchovers, failovers                                                                         *prometheus.CounterVec
	processing                                                                                                     *prometheus.HistogramVec
	ongoing                                                                                                        *stopmetrics.Gauges
	// state, lag and waiting are of the last look, which goes on while clustering is stopped.
	state, lag, waiting *prometheus.GaugeVec
}

// cacheReaders are the caches of a running controller, and its clock.
type cacheReaders struct {
	clusters, pods client.Reader
	clock          clock.PassiveClock
}

// NewMetrics makes the metrics of this feature. Their names and helps are upstream's.
func NewMetrics() *Metrics {
	labels := []string{"name", "namespace"}
	return &Metrics{
		ongoing:               stopmetrics.NewGauges(mocov1beta2.MySQLClusterKind().Kind),
		clusteringStopped:     prometheus.NewDesc("moco_cluster_clustering_stopped", "Indicates if clustering has stopped", labels, nil),
		reconciliationStopped: prometheus.NewDesc("moco_cluster_reconciliation_stopped", "Indicates if reconciliation has stopped", labels, nil),
		available:             prometheus.NewDesc("moco_cluster_available", "The cluster status about available condition", labels, nil),
		healthy:               prometheus.NewDesc("moco_cluster_healthy", "The cluster status about healthy condition", labels, nil),
		replicas:              prometheus.NewDesc("moco_cluster_replicas", "The number of instances in the cluster", labels, nil),
		readyReplicas:         prometheus.NewDesc("moco_cluster_ready_replicas", "The number of ready Pods in the cluster", labels, nil),
		errantReplicas:        prometheus.NewDesc("moco_cluster_errant_replicas", "The number of instances that have errant transactions", labels, nil),
		overdue: prometheus.NewDesc("torpor_mysql_stop_overdue_seconds",
			"For how long a stop has outlived the time until which it was asked for; 0 while none has", labels, nil),
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "torpor_mysql_state", Help: "1 for the state of the cluster that the last look has found, also while clustering is stopped",
		}, []string{"name", "namespace", "state"}),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "torpor_mysql_instance_lag_seconds", Help: "For how long at least what readers of the instance find is old; it grows while the instance does not follow",
		}, []string{"name", "namespace", "ordinal"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "torpor_mysql_waiting_sessions", Help: "The number of sessions of the primary that wait for a replica's acknowledgement",
		}, labels),
		processing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "moco_cluster_processing_time_seconds", Help: "The length of time in seconds processing the cluster",
			Buckets: []float64{.1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 30},
		}, labels),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_checks_total", Help: "The number of times MOCO has checked the cluster",
		}, labels),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_errors_total", Help: "The number of times MOCO has got errors from the cluster",
		}, labels),
		switchovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_switchover_total", Help: "The total count of switchover in the cluster",
		}, labels),
		failovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_failover_total", Help: "The total count of failover in the cluster",
		}, labels),
	}
}

func (m *Metrics) counters() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{m.checks, m.errors, m.switchovers, m.failovers}
}

func (m *Metrics) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.state, m.lag, m.waiting}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.clusteringStopped, m.reconciliationStopped, m.available, m.healthy, m.replicas, m.readyReplicas, m.errantReplicas, m.overdue,
	} {
		ch <- d
	}
	m.ongoing.Describe(ch)
	for _, c := range m.counters() {
		c.Describe(ch)
	}
	for _, g := range m.gauges() {
		g.Describe(ch)
	}
	m.processing.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counters() {
		c.Collect(ch)
	}
	for _, g := range m.gauges() {
		g.Collect(ch)
	}
	m.processing.Collect(ch)
	from := m.readers.Load()
	if from == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) // A collector is given no context.
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
	switches := stops.Read(cluster, now)
	overdue := switches.OverdueDuration(now)
	m.ongoing.CollectStop(ch, cluster, "clustering", switches.Clustering.Records)
	m.ongoing.CollectStop(ch, cluster, "reconciliation", switches.Reconciliation.Records)
	m.ongoing.CollectStop(ch, cluster, "instances", switches.Instances.Records)
	// While clustering is stopped nobody vouches for the conditions. A cluster that looks well then must page nobody, and one
	// that does not must.
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

// countPass counts a pass whose status was saved, and how long it took.
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

// showLook shows what a look has found.
func (m *Metrics) showLook(name types.NamespacedName, seen *observation, plan clustering.Plan) {
	m.dropGauges(name)
	m.state.WithLabelValues(name.Name, name.Namespace, string(plan.State)).Set(1)
	for i, r := range plan.Instances {
		m.lag.WithLabelValues(name.Name, name.Namespace, strconv.Itoa(i)).Set(r.Staleness.Seconds())
	}
	waiting := 0
	if seen.Primary != clustering.NoInstance && seen.Primary < len(seen.Instances) {
		waiting = seen.Instances[seen.Primary].SemiSync.Waiting
	}
	m.waiting.WithLabelValues(name.Name, name.Namespace).Set(float64(waiting))
}

func (m *Metrics) dropGauges(name types.NamespacedName) {
	for _, g := range m.gauges() {
		g.DeletePartialMatch(prometheus.Labels{"name": name.Name, "namespace": name.Namespace})
	}
}

// forgetCluster drops the counts of a cluster that is gone.
func (m *Metrics) forgetCluster(name types.NamespacedName) {
	for _, c := range m.counters() {
		c.DeleteLabelValues(name.Name, name.Namespace)
	}
	m.processing.DeleteLabelValues(name.Name, name.Namespace)
	m.dropGauges(name)
}
