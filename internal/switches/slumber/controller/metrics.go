// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Metrics reads every Slumber and ClusterSlumber directly from the cache, so that the values are correct after a
// restart and disappear with the object. For a ClusterSlumber, the namespace label is empty. A process has one
// Metrics, which is registered once.
type Metrics struct {
	cache reconcile.ScrapedCache
	// clusterCache is used by the controller of ClusterSlumbers, which not every manager runs.
	clusterCache                 reconcile.ScrapedCache
	state, next, asleep, stalled *prometheus.Desc
}

// NewMetrics returns the metrics of this feature.
func NewMetrics() *Metrics {
	labels := []string{"namespace", "name"}
	return &Metrics{
		state:   prometheus.NewDesc("torpor_slumber_state", "1 for the current state of a Slumber or ClusterSlumber.", append(labels, "state"), nil),
		next:    prometheus.NewDesc("torpor_slumber_next_transition_timestamp_seconds", "Time of the next scheduled stop or start of a Slumber or ClusterSlumber, in Unix time.", append(labels, "to"), nil),
		asleep:  prometheus.NewDesc("torpor_slumber_members", "Number of objects that a Slumber or ClusterSlumber selects, by whether they are stopped.", append(labels, "asleep"), nil),
		stalled: prometheus.NewDesc("torpor_slumber_stalled", "1 if the condition Stalled of a Slumber or ClusterSlumber is True.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.state
	ch <- m.next
	ch <- m.asleep
	ch <- m.stalled
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	var slumbers torporv1alpha1.SlumberList
	var ofCluster torporv1alpha1.ClusterSlumberList
	if !m.cache.List(&slumbers) {
		return
	}
	m.clusterCache.List(&ofCluster) // The list is empty if the controller of ClusterSlumbers does not run.
	all := slumbers.Items
	for i := range ofCluster.Items {
		s := &ofCluster.Items[i]
		all = append(all, torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Status: s.Status})
	}
	for i := range all {
		s := &all[i]
		gauge := func(desc *prometheus.Desc, value float64, more ...string) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{s.Namespace, s.Name}, more...)...)
		}
		if c := meta.FindStatusCondition(s.Status.Conditions, torporv1alpha1.SlumberStalledCondition); c != nil {
			gauge(m.stalled, map[bool]float64{true: 1}[c.Status == metav1.ConditionTrue])
		}
		if s.Status.State == "" {
			continue
		}
		gauge(m.state, 1, string(s.Status.State))
		gauge(m.asleep, float64(s.Status.Asleep), "true")
		gauge(m.asleep, float64(s.Status.Members-s.Status.Asleep), "false")
		if next := s.Status.NextTransitions; len(next) > 0 {
			gauge(m.next, float64(next[0].At.Unix()), string(next[0].To))
		}
	}
}
