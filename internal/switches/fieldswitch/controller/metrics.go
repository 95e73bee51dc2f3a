// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stopmetrics "github.com/torpor-dev/torpor/internal/stop/metrics"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const scrapeTimeout = 5 * time.Second

// Metrics reads the stops that users requested directly from the caches of the kinds that can be stopped now. One
// lives as long as the process; register it once.
type Metrics struct {
	mu    sync.Mutex
	kinds map[schema.GroupKind]measuredKind
}

// measuredKind is a kind, the reader of its objects, and its gauges.
type measuredKind struct {
	kinds.Kind
	reader client.Reader
	gauges *stopmetrics.Gauges
}

// NewMetrics returns the metrics of this feature.
func NewMetrics() *Metrics { return &Metrics{kinds: map[schema.GroupKind]measuredKind{}} }

// Describe implements prometheus.Collector. It describes nothing, because kinds come and go.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	for _, kind := range m.list() {
		list := kind.NewMetadataList()
		// A cluster has thousands of objects, of which few were ever stopped.
		if err := kind.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			continue
		}
		for i := range list.Items {
			if obj := &list.Items[i]; fieldswitch.IsAsked(obj) {
				kind.gauges.CollectStop(ch, obj, kind.Switch().Part, fieldswitch.ReadSwitch(obj).Records)
			}
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

// add exposes the objects of a kind.
func (m *Metrics) add(kind kinds.Kind, reader client.Reader) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kinds[kind.GVK().GroupKind()] = measuredKind{kind, reader, stopmetrics.NewGauges(kind.MetricLabel())}
}

func (m *Metrics) remove(kind kinds.Kind) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kinds, kind.GVK().GroupKind())
}
