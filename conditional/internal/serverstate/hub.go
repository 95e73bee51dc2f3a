// SPDX-License-Identifier: Apache-2.0

// Package serverstate holds what all groups of a process share about one API server: its detector, its informers and the limit
// of starts at once.
package serverstate

import (
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/informers"
	"github.com/torpor-dev/torpor/conditional/internal/managercache"
	"github.com/torpor-dev/torpor/conditional/internal/metrics"
	"github.com/torpor-dev/torpor/conditional/internal/webhooks"
)

// startsAtOnce is how many groups of one API server may start at a time: five hundred CRDs may be installed at once.
const startsAtOnce = 16

// Hub is shared by everything that uses the same *rest.Config, which a cluster.Cluster keeps as it was given, the same
// scheme, which says how objects are decoded, and the same outer cache, whose options say which objects there are.
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
	outer  *managercache.Cache
}

// Server is an API server as a manager uses it.
type Server struct {
	Config     *rest.Config
	HTTPClient *http.Client
	Scheme     *runtime.Scheme
	// Outer is nil for a manager without ManagerOptions.
	Outer *managercache.Cache
}

// ServerOf returns the API server of a manager.
func ServerOf(cl cluster.Cluster) Server {
	return Server{cl.GetConfig(), cl.GetHTTPClient(), cl.GetScheme(), managercache.Of(cl.GetCache())}
}

func (s Server) cacheOptions() cache.Options {
	opts := s.Outer.Settings().Cache
	if s.Outer == nil {
		opts.HTTPClient, opts.Scheme = s.HTTPClient, s.Scheme
	}
	return opts
}

// Of returns the hub of a server, a new one if there is none. It makes no request. The caller gives it back with release.
func Of(s Server, log logr.Logger) (_ *Hub, release func(), err error) {
	all, err := registered()
	if err != nil {
		return nil, nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	k := key{s.Config, s.Scheme, s.Outer}
	h, there := all.of[k]
	if !there {
		detector, err := detect.New(s.Config, s.HTTPClient, log)
		if err != nil {
			return nil, nil, err
		}
		h = &Hub{
			Detector:  detector,
			Informers: informers.New(s.Config, s.cacheOptions(), detector),
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
	totals []gauge
	probes *prometheus.Desc

	mu sync.Mutex
	of map[key]*Hub
}

func registered() (*hubs, error) {
	all := &hubs{totals: totals(), probes: probes(), of: map[key]*Hub{}}
	err := metrics.Share(&all)
	return all, err
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
