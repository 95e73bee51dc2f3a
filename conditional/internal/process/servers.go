// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/torpor-dev/torpor/conditional/internal/delegatingmanager"
	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

// maxConcurrentStarts is the maximum number of groups of one API server that start concurrently. It limits the load if,
// for example, five hundred CRDs are installed at the same time.
const maxConcurrentStarts = 16

// SharedState is the state for one API server. It is shared by all users with the same *rest.Config, scheme and outer
// cache. A cluster.Cluster never changes its config, the scheme defines how objects are decoded, and the options of the
// outer cache define which objects are visible.
type SharedState struct {
	Detector  *detect.Detector
	Informers *informers.Pool
	// Rules caches the rights of the manager's user.
	Rules RulesCache
	// StartSlots contains one value per start in progress.
	StartSlots chan struct{}
	// Log receives errors that cannot be returned to a caller.
	Log      logr.Logger
	Registry *Registry

	key   stateKey
	users int
}

type stateKey struct {
	cfg    *rest.Config
	scheme *runtime.Scheme
	outer  *delegatingmanager.Cache
}

// APIServer identifies an API server and a manager's way of using it.
type APIServer struct {
	Config     *rest.Config
	HTTPClient *http.Client
	Scheme     *runtime.Scheme
	// Outer is the manager's cache; nil for a cluster without a manager.
	Outer *delegatingmanager.Cache
}

// FromCluster returns the API server of a cluster or manager.
func FromCluster(cl cluster.Cluster) APIServer {
	return APIServer{cl.GetConfig(), cl.GetHTTPClient(), cl.GetScheme(), delegatingmanager.FromCache(cl.GetCache())}
}

func (s APIServer) cacheOptions() cache.Options {
	opts := s.Outer.ScopeSettings().Cache
	if s.Outer == nil {
		opts.HTTPClient, opts.Scheme = s.HTTPClient, s.Scheme
	}
	return opts
}

// AcquireState returns the state for a server, and creates it if necessary. It sends no request. The state is discarded
// when all callers have called release.
func AcquireState(s APIServer, log logr.Logger) (_ *SharedState, release func(), err error) {
	all, err := RegistryOf(s.Outer)
	if err != nil {
		return nil, nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	k := stateKey{s.Config, s.Scheme, s.Outer}
	h, there := all.states[k]
	if !there {
		detector, err := detect.New(s.Config, s.HTTPClient, log)
		if err != nil {
			return nil, nil, err
		}
		h = &SharedState{
			Detector:   detector,
			Informers:  informers.New(s.Config, s.cacheOptions(), s.Outer.BorrowInformer),
			StartSlots: make(chan struct{}, maxConcurrentStarts),
			Log:        log,
			Registry:   all,
			key:        k,
		}
		all.states[k] = h
	}
	h.users++
	isReleased := false
	return h, func() { h.releaseOnce(&isReleased) }, nil
}

func (h *SharedState) releaseOnce(isReleased *bool) {
	h.Registry.mu.Lock()
	defer h.Registry.mu.Unlock()
	if *isReleased {
		return
	}
	*isReleased = true
	if h.users--; h.users == 0 {
		delete(h.Registry.states, h.key)
	}
}
