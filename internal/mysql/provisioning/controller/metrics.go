// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// scrapeTimeout limits the duration of cache reads.
const scrapeTimeout = 5 * time.Second

// Metrics exports the progress of rollouts from the caches, and counts changes to volumes and StatefulSets. The names
// are those of MOCO's metrics. One instance exists for the lifetime of the process, and is registered once.
type Metrics struct {
	clusters reconcile.ScrapedCache
	// children caches the Pods and StatefulSets.
	children atomic.Pointer[client.Reader]

	currentReplicas, updatedReplicas                                 *prometheus.Desc
	lastReplaced                                                     *prometheus.GaugeVec
	turnWaits, resized, resizeErrors, setsReplaced, setReplaceErrors *prometheus.CounterVec
}

// NewMetrics creates the metrics of this feature.
func NewMetrics() *Metrics {
	labels := []string{"name", "namespace"}
	return &Metrics{
		currentReplicas: prometheus.NewDesc("moco_cluster_current_replicas",
			"Number of Pods that the rollout in progress has not replaced yet; number of all Pods if there is no rollout", labels, nil),
		updatedReplicas: prometheus.NewDesc("moco_cluster_updated_replicas", "Number of Pods that no rollout has to replace", labels, nil),
		lastReplaced: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "moco_cluster_last_partition_updated", Help: "Time at which a rollout last replaced a Pod, in Unix time",
		}, labels),
		turnWaits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_partition_update_retries_total", Help: "Number of passes in which a rollout waited for the rollouts of other clusters",
		}, []string{"namespace"}),
		resized: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_volume_resized_total", Help: "Number of successful attempts to grow the volume claims of the cluster",
		}, labels),
		resizeErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_volume_resized_errors_total", Help: "Number of failed attempts to grow the volume claims of the cluster",
		}, labels),
		setsReplaced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_statefulset_recreate_total", Help: "Number of StatefulSets that were deleted without their Pods, to be recreated",
		}, labels),
		setReplaceErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "moco_cluster_statefulset_recreate_errors_total", Help: "Number of failed attempts to delete a StatefulSet without its Pods",
		}, labels),
	}
}

func (m *Metrics) vectors() []prometheus.Collector {
	return []prometheus.Collector{m.lastReplaced, m.turnWaits, m.resized, m.resizeErrors, m.setsReplaced, m.setReplaceErrors}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.currentReplicas
	ch <- m.updatedReplicas
	for _, v := range m.vectors() {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, v := range m.vectors() {
		v.Collect(ch)
	}
	var clusters mocov1beta2.MySQLClusterList
	children := m.children.Load()
	if children == nil || !m.clusters.List(&clusters) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) // Collect has no context parameter.
	defer cancel()
	for i := range clusters.Items {
		cluster := &clusters.Items[i]
		pods, podsErr := listPods(ctx, *children, cluster)
		set, setErr := readStatefulSet(ctx, *children, cluster)
		if podsErr != nil || setErr != nil || set == nil {
			continue
		}
		current, updated := countReplicas(pods, set)
		ch <- prometheus.MustNewConstMetric(m.currentReplicas, prometheus.GaugeValue, float64(current), cluster.Name, cluster.Namespace)
		ch <- prometheus.MustNewConstMetric(m.updatedReplicas, prometheus.GaugeValue, float64(updated), cluster.Name, cluster.Namespace)
	}
}

// countReplicas returns the number of Pods that the rollout in progress has not replaced yet, and the number of all
// other Pods. Without a rollout, both are the number of all Pods. The Pods are counted here, because the status of a
// StatefulSet with the strategy OnDelete does not count current Pods after a rollout.
func countReplicas(pods []*corev1.Pod, set *appsv1.StatefulSet) (current, updated int) {
	for _, p := range pods {
		switch {
		case p == nil:
		case podStateOf(p, set, time.Time{}).Outdated:
			current++
		default:
			updated++
		}
	}
	if current == 0 {
		current = updated
	}
	return current, updated
}

func (m *Metrics) useReaders(clusters, children client.Reader) {
	m.clusters.Use(clusters)
	m.children.Store(&children)
}

// countStep records a step or a wait of a rollout after the status of its pass was saved.
func (m *Metrics) countStep(name types.NamespacedName, out reconcile.FollowUp, now time.Time) {
	if out.Rule == "waiting for other rollouts" {
		m.turnWaits.WithLabelValues(name.Namespace).Inc()
	}
	for _, e := range out.Events {
		if isReplacement(e) {
			m.lastReplaced.WithLabelValues(name.Name, name.Namespace).Set(float64(now.Unix()))
		}
	}
}

// isReplacement reports whether an event reports the replacement of a Pod.
func isReplacement(e decision.Event) bool {
	return e.Reason == podReplaced || e.Reason == rolloutForced
}

// countResult counts an attempt as successful or failed.
func countResult(done, failed *prometheus.CounterVec, cluster *mocov1beta2.MySQLCluster, err error) {
	if err != nil {
		done = failed
	}
	done.WithLabelValues(cluster.Name, cluster.Namespace).Inc()
}

// forgetCluster removes the counts of a deleted cluster.
func (m *Metrics) forgetCluster(name types.NamespacedName) {
	labels := prometheus.Labels{"name": name.Name, "namespace": name.Namespace}
	m.lastReplaced.Delete(labels)
	for _, c := range []*prometheus.CounterVec{m.resized, m.resizeErrors, m.setsReplaced, m.setReplaceErrors} {
		c.Delete(labels)
	}
}
