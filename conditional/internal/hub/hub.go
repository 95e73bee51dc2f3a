// SPDX-License-Identifier: Apache-2.0

// Package hub holds what all groups of a process share about one API server: its detector and the limit of starts at
// once.
package hub

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/webhooks"
)

// startsAtOnce is how many groups of one API server may start at a time: five hundred CRDs may be installed at once.
const startsAtOnce = 16

// Hub is shared by everything that uses the same *rest.Config, which every cluster.Cluster has of its own.
type Hub struct {
	Detector *detect.Detector
	// Starts has room for one value per start in progress.
	Starts chan struct{}
	// Webhooks has the paths that groups serve, for each manager of the API server.
	Webhooks webhooks.Managers

	users int
}

// Of returns the hub of cfg, a new one if there is none. It makes no request. The caller gives it back with release.
func Of(cfg *rest.Config, hc *http.Client, _ *runtime.Scheme, log logr.Logger) (_ *Hub, release func(), err error) {
	all, err := registered()
	if err != nil {
		return nil, nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	h, there := all.of[cfg]
	if !there {
		detector, err := detect.New(cfg, hc, log)
		if err != nil {
			return nil, nil, err
		}
		h = &Hub{Detector: detector, Starts: make(chan struct{}, startsAtOnce)}
		all.of[cfg] = h
	}
	h.users++
	return h, sync.OnceFunc(func() { all.leave(cfg, h) }), nil
}

// hubs is a collector, so that the process's registry of metrics, where controller-runtime has its own, keeps the one
// list of them.
type hubs struct {
	desc *prometheus.Desc

	mu sync.Mutex
	of map[*rest.Config]*Hub
}

func registered() (*hubs, error) {
	all := &hubs{
		desc: prometheus.NewDesc("torpor_gate_api_servers", "API servers that conditional groups look at.", nil, nil),
		of:   map[*rest.Config]*Hub{},
	}
	err := metrics.Registry.Register(all)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := there.ExistingCollector.(*hubs); ok {
			return old, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register the metrics of API servers: %w", err)
	}
	return all, nil
}

func (all *hubs) leave(cfg *rest.Config, h *Hub) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(all.of, cfg)
	}
}

// Describe names the metric.
func (all *hubs) Describe(to chan<- *prometheus.Desc) { to <- all.desc }

// Collect counts.
func (all *hubs) Collect(to chan<- prometheus.Metric) {
	all.mu.Lock()
	defer all.mu.Unlock()
	to <- prometheus.MustNewConstMetric(all.desc, prometheus.GaugeValue, float64(len(all.of)))
}
