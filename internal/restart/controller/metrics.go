// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/restart"
)

const scrapeTimeout = 5 * time.Second

// Metrics shows every CFApp straight from the cache, so that it is right after a restart of the manager and gone with the
// object, and counts what happened. One lives as long as the process; register it once.
type Metrics struct {
	reader atomic.Pointer[client.Reader]

	revision, instances *prometheus.Desc
	restarts            *prometheus.CounterVec
	firstReady, drain   prometheus.Histogram

	// draining holds, by process, since when something of it drains.
	draining sync.Map
}

// NewMetrics makes the metrics of this feature.
func NewMetrics() *Metrics {
	labels := []string{"name", "namespace"}
	buckets := prometheus.ExponentialBuckets(0.05, 2, 14)
	return &Metrics{
		revision:  prometheus.NewDesc("torpor_app_revision", "Revision of an app that was acted on last.", labels, nil),
		instances: prometheus.NewDesc("torpor_app_instances", "Instances of an app: desired, ready or draining.", append(labels, "state"), nil),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_app_restarts_total", Help: "Revisions that began, by cause.",
		}, []string{"cause"}),
		firstReady: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "torpor_app_first_ready_seconds", Help: "Time from the LRP of a revision to its first ready instance.", Buckets: buckets,
		}),
		drain: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "torpor_app_drain_seconds", Help: "Time that the instances of an older revision took to end.", Buckets: buckets,
		}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.revision
	ch <- m.instances
	for _, c := range m.counters() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counters() {
		c.Collect(ch)
	}
	reader := m.reader.Load()
	if reader == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var apps korifiv1alpha1.CFAppList
	if err := (*reader).List(ctx, &apps); err != nil {
		return
	}
	for i := range apps.Items {
		m.show(ch, &apps.Items[i])
	}
}

func (m *Metrics) show(ch chan<- prometheus.Metric, app *korifiv1alpha1.CFApp) {
	ch <- prometheus.MustNewConstMetric(m.revision, prometheus.GaugeValue, float64(app.Status.ObservedRevision), app.Name, app.Namespace)
	counts := app.Status.Instances
	if counts == nil {
		counts = &korifiv1alpha1.InstanceCounts{}
	}
	for state, n := range map[string]int32{"desired": counts.Desired, "ready": counts.Ready, "draining": counts.Draining} {
		ch <- prometheus.MustNewConstMetric(m.instances, prometheus.GaugeValue, float64(n), app.Name, app.Namespace, state)
	}
}

func (m *Metrics) counters() []prometheus.Collector {
	return []prometheus.Collector{m.restarts, m.firstReady, m.drain}
}

func (m *Metrics) use(reader client.Reader) { m.reader.Store(&reader) }

// restarted counts revisions; those that were over at once count for the cause of the one that came of them.
func (m *Metrics) restarted(cause korifiv1alpha1.RestartCause, revisions int64) {
	m.restarts.WithLabelValues(string(cause)).Add(float64(revisions))
}

// countProcess takes the times of a pass that was saved, by what the status was before it.
func (m *Metrics) countProcess(seen *observation, before *korifiv1alpha1.CFProcessStatus) {
	if before.ActualInstances == 0 && seen.process.Status.ActualInstances > 0 {
		for i := range seen.lrps {
			if l := &seen.lrps[i]; l.Name == restart.Name(seen.process.Name, seen.Target()) {
				m.firstReady.Observe(seen.Now.Sub(l.CreationTimestamp.Time).Seconds())
			}
		}
	}
}

// countDrain takes the time from the pass that first sees something drain to the one that sees nothing left. Most drains
// are over before they are worth a report, so the report cannot tell.
func (m *Metrics) countDrain(process types.UID, draining bool, now time.Time) {
	if draining {
		m.draining.LoadOrStore(process, now)
		return
	}
	if began, was := m.draining.LoadAndDelete(process); was {
		if at, ok := began.(time.Time); ok {
			m.drain.Observe(now.Sub(at).Seconds())
		}
	}
}
