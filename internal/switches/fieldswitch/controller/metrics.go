// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stopmetrics "github.com/torpor-dev/torpor/internal/stop/metrics"
	"github.com/torpor-dev/torpor/internal/stop/savings"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const scrapeTimeout = 5 * time.Second

// Metrics exposes the stops that users requested and what all stops save. It reads them from the caches of the kinds
// that can be stopped now. A process has one Metrics, which is registered once.
type Metrics struct {
	mu    sync.Mutex
	kinds map[schema.GroupKind]measuredKind
	// saved are the savings counters of all kinds. They are kept when a kind is removed, so that they continue if the
	// kind is added again.
	saved map[schema.GroupKind]*stopmetrics.Counters
}

// measuredKind is a kind, the reader of its objects, and its gauges.
type measuredKind struct {
	kinds.Kind
	reader client.Reader
	gauges *stopmetrics.Gauges
	// saved is nil for a kind whose savings are not known.
	saved *stopmetrics.Counters
}

// NewMetrics returns the metrics of this feature.
func NewMetrics() *Metrics {
	return &Metrics{kinds: map[schema.GroupKind]measuredKind{}, saved: map[schema.GroupKind]*stopmetrics.Counters{}}
}

// Describe implements prometheus.Collector. It sends no descriptors, because kinds are added and removed at run time.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	for _, kind := range m.list() {
		list := kind.NewMetadataList()
		// The list is not copied, because a cluster may have thousands of objects, and few were ever stopped.
		if err := kind.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			continue
		}
		for i := range list.Items {
			obj := &list.Items[i]
			if fieldswitch.IsAsked(obj) {
				kind.gauges.CollectStop(ch, obj, kind.Switch().Part, fieldswitch.ReadSwitch(obj).Records)
			}
			if kind.saved != nil {
				kind.saved.CollectSavings(ch, obj, savings.ReadAnnotation(obj.Annotations))
			}
		}
		if kind.saved != nil {
			kind.saved.EndScrape()
		}
	}
}

func (m *Metrics) list() (all []measuredKind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, kind := range m.kinds {
		all = append(all, kind)
	}
	return all
}

// add starts to expose metrics of the objects of a kind.
func (m *Metrics) add(kind kinds.Kind, reader client.Reader, of clock.PassiveClock) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kinds[kind.GVK().GroupKind()] = measuredKind{kind, reader, stopmetrics.NewGauges(kind.MetricLabel()), m.countersOf(kind, of)}
}

// countersOf returns the counters of a kind, or nil if its savings are not known. The caller holds the lock.
func (m *Metrics) countersOf(kind kinds.Kind, of clock.PassiveClock) *stopmetrics.Counters {
	if kind.Switch().ReadRate == nil {
		return nil
	}
	counters := m.saved[kind.GVK().GroupKind()]
	if counters == nil {
		counters = stopmetrics.NewPodCounters(kind.MetricLabel())
		m.saved[kind.GVK().GroupKind()] = counters
	}
	counters.UseClock(of)
	return counters
}

// observeSavings returns the time of this observation, and how long the object's stop has lasted then. The savings
// are computed from this.
func (m *Metrics) observeSavings(kind kinds.Kind, obj metav1.Object, now time.Time) savings.Moment {
	var counters *stopmetrics.Counters
	if m != nil {
		m.mu.Lock()
		counters = m.saved[kind.GVK().GroupKind()]
		m.mu.Unlock()
	}
	return counters.Observe(obj.GetUID(), savings.ReadAnnotation(obj.GetAnnotations()), now)
}

func (m *Metrics) remove(kind kinds.Kind) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kinds, kind.GVK().GroupKind())
}
