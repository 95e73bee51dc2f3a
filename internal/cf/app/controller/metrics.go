// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	stopmetrics "github.com/torpor-dev/torpor/internal/stop/metrics"
)

// Metrics exports the state of every CFApp in the cache. Values are therefore correct after the manager restarts, and
// disappear when the CFApp is deleted. It also counts revisions. Create and register one Metrics per manager process.
type Metrics struct {
	cache reconcile.ScrapedCache

	revision, instances *prometheus.Desc
	restarts            *prometheus.CounterVec
	stops               *stopmetrics.Gauges
	saved               *stopmetrics.Counters
}

// NewMetrics creates the metrics of apps.
func NewMetrics() *Metrics {
	labels := []string{"name", "namespace"}
	return &Metrics{
		stops:     stopmetrics.NewGauges(korifiv1alpha1.CFAppKind().Kind),
		saved:     stopmetrics.NewPodCounters(korifiv1alpha1.CFAppKind().Kind),
		revision:  prometheus.NewDesc("torpor_app_revision", "Newest revision of an app that the controller has observed.", labels, nil),
		instances: prometheus.NewDesc("torpor_app_instances", "Number of instances of an app, by state: desired, ready, draining, or ready_older for older revisions that serve during a deployment.", append(labels, "state"), nil),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_app_restarts_total", Help: "Number of app revisions that have begun, by cause.",
		}, []string{"cause"}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.revision
	ch <- m.instances
	m.restarts.Describe(ch)
	m.stops.Describe(ch)
	m.saved.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.restarts.Collect(ch)
	var apps korifiv1alpha1.CFAppList
	if !m.cache.List(&apps) {
		return
	}
	for i := range apps.Items {
		app := &apps.Items[i]
		if statusannotation.IsIn(app) {
			app = app.DeepCopy()
			statusannotation.RestoreStatus(app)
		}
		m.collectApp(ch, app)
	}
	m.saved.EndScrape()
}

func (m *Metrics) collectApp(ch chan<- prometheus.Metric, app *korifiv1alpha1.CFApp) {
	ch <- prometheus.MustNewConstMetric(m.revision, prometheus.GaugeValue, float64(app.Status.ObservedRevision), app.Name, app.Namespace)
	m.stops.CollectStop(ch, app, "app", app.Status.Stops)
	m.saved.CollectSavings(ch, app, app.Status.Savings)
	counts := app.Status.Instances
	if counts == nil {
		counts = &korifiv1alpha1.InstanceCounts{}
	}
	for state, n := range map[string]int32{"desired": counts.Desired, "ready": counts.Ready, "ready_older": counts.ReadyOlder, "draining": counts.Draining} {
		ch <- prometheus.MustNewConstMetric(m.instances, prometheus.GaugeValue, float64(n), app.Name, app.Namespace, state)
	}
}

// countRestarts counts revisions. Revisions that ended before they were observed are counted with the cause of the
// revision that followed.
func (m *Metrics) countRestarts(cause korifiv1alpha1.RestartCause, revisions int64) {
	m.restarts.WithLabelValues(string(cause)).Add(float64(revisions))
}
