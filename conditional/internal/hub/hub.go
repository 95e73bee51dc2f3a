// SPDX-License-Identifier: Apache-2.0

// Package hub holds what all groups of a process share about one API server: its detector, its informers and the limit
// of starts at once.
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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/informers"
	"github.com/torpor-dev/torpor/conditional/internal/webhooks"
)

// startsAtOnce is how many groups of one API server may start at a time: five hundred CRDs may be installed at once.
const startsAtOnce = 16

// Hub is shared by everything that uses the same *rest.Config, which a cluster.Cluster keeps as it was given, and the
// same scheme, which says how objects are decoded.
type Hub struct {
	Detector  *detect.Detector
	Informers *informers.Pool
	// Starts has room for one value per start in progress.
	Starts chan struct{}
	// Webhooks has the paths that groups serve, for each manager of the API server.
	Webhooks webhooks.Managers

	// Log is for what nobody waits for.
	Log logr.Logger

	users int
}

type key struct {
	cfg    *rest.Config
	scheme *runtime.Scheme
}

// Of returns the hub of cfg and scheme, a new one if there is none. It makes no request. The caller gives it back with release.
func Of(cfg *rest.Config, hc *http.Client, scheme *runtime.Scheme, log logr.Logger) (_ *Hub, release func(), err error) {
	all, err := registered()
	if err != nil {
		return nil, nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	k := key{cfg, scheme}
	h, there := all.of[k]
	if !there {
		detector, err := detect.New(cfg, hc, log)
		if err != nil {
			return nil, nil, err
		}
		h = &Hub{
			Detector:  detector,
			Informers: informers.New(cfg, cache.Options{HTTPClient: hc, Scheme: scheme}, detector),
			Starts:    make(chan struct{}, startsAtOnce),
			Log:       log,
		}
		all.of[k] = h
	}
	h.users++
	return h, sync.OnceFunc(func() { all.leave(k, h) }), nil
}

// hubs is a collector, so that the process's registry of metrics, where controller-runtime has its own, keeps the one
// list of them.
type hubs struct {
	gauges []gauge
	probes *prometheus.Desc

	mu sync.Mutex
	of map[key]*Hub
}

func registered() (*hubs, error) {
	all := &hubs{gauges: gauges(), probes: probes(), of: map[key]*Hub{}}
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

func (all *hubs) leave(k key, h *Hub) {
	if all.isLast(k, h) {
		h.Informers.Close()
	}
}

func (all *hubs) isLast(k key, h *Hub) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if h.users--; h.users > 0 {
		return false
	}
	delete(all.of, k)
	return true
}
