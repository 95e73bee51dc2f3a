// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// Metrics measures the durations of starts and drains. Create and register one Metrics per manager process.
type Metrics struct {
	firstReady, drain prometheus.Histogram

	// draining maps the UID of each draining process to the start time of the drain.
	draining sync.Map
}

// NewMetrics returns the metrics of processes.
func NewMetrics() *Metrics {
	buckets := prometheus.ExponentialBuckets(0.05, 2, 14)
	return &Metrics{
		firstReady: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "torpor_app_first_ready_seconds",
			Help: "Time from the creation of a revision's LRP to its first ready instance.", Buckets: buckets,
		}),
		drain: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "torpor_app_drain_seconds", Help: "Time from the first stopped instance of older revisions until all instances of older revisions have ended.", Buckets: buckets,
		}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.firstReady.Describe(ch)
	m.drain.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.firstReady.Collect(ch)
	m.drain.Collect(ch)
}

// observeFirstReady records the start duration of the target revision if its first instance has just become ready. It
// ignores an instance that becomes ready again after a crash.
func (m *Metrics) observeFirstReady(seen *observation, before *korifiv1alpha1.CFProcessStatus) {
	target := seen.TargetRevision()
	if hasBeenReady(before, target) || !hasBeenReady(&seen.process.Status, target) {
		return
	}
	for i := range seen.lrps {
		if l := &seen.lrps[i]; l.Name == revision.LRPName(seen.process.Name, target) {
			m.firstReady.Observe(seen.Now.Sub(l.CreationTimestamp.Time).Seconds())
		}
	}
}

func hasBeenReady(status *korifiv1alpha1.CFProcessStatus, revision int64) bool {
	return slices.ContainsFunc(status.Revisions, func(r korifiv1alpha1.RevisionStatus) bool {
		return r.Revision == revision && (r.Ready > 0 || r.FirstReadyAt != nil)
	})
}

// trackDrain measures the time from the first reconciliation with draining Pods to the first one without them. The
// status cannot be used, because most drains end before their status is written.
func (m *Metrics) trackDrain(process types.UID, draining bool, now time.Time) {
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
