// SPDX-License-Identifier: Apache-2.0

// Package scope has the manager that one activation of a conditional group receives: a decorated manager.Manager
// whose cache, client and runnables end with the activation, and refuse every use afterwards.
package scope

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/refreshclient"
	"github.com/torpor-dev/torpor/conditional/internal/serverstate"
)

// ErrClosed is the answer of a scope after its activation has ended.
var ErrClosed = errors.New("the scope of this conditional controller is closed: take clients and caches from the manager that setup was given last")

// Options are what a group asks of its scopes.
type Options struct {
	// Optional are the kinds that may come and go while the scope lives.
	Optional []schema.GroupVersionKind
	// Interest is how the detector may watch the optional kinds; its Kinds are not used.
	Interest detect.Interest
}

// Manager is the scoped manager. Its zero value is not usable.
type Manager struct {
	manager.Manager                         // the outer one
	inner             cluster.Cluster       // never started as a whole: only its cache is
	cache             *scopedCache          // its cache
	client, apiReader *refreshclient.Client // its client, and the one without a cache
	lifetime          context.Context       // of the cache; its end closes the scope
	Close             func()                // ends lifetime and returns the leases of informers, without waiting; it may be called more than once

	mu            sync.Mutex
	queued        []manager.Runnable
	runContext    context.Context // of the runnables, nil before Run
	isDraining    bool
	running       sync.WaitGroup
	failed        chan error // room for the first error
	healthz       map[string]healthz.Checker
	readyz        map[string]healthz.Checker
	extraHandlers map[string]http.Handler
}

// New returns a scope with the outer manager's config, HTTP client and scheme, and the informers that
// groups of the API server share. It makes no request.
func New(outer manager.Manager, h *serverstate.SharedState, o Options) (*Manager, error) {
	m := &Manager{
		Manager:       outer,
		failed:        make(chan error, 1),
		healthz:       map[string]healthz.Checker{},
		readyz:        map[string]healthz.Checker{},
		extraHandlers: map[string]http.Handler{},
	}
	var endLife context.CancelFunc
	m.lifetime, endLife = context.WithCancel(context.Background())
	m.cache = newScopedCache(m.lifetime, outer, h, o)
	m.cache.reportError, m.cache.refreshClients = m.reportFailure, m.refreshClients
	m.Close = sync.OnceFunc(func() { endLife(); m.cache.close() })
	err := m.buildCluster(outer)
	if err == nil {
		err = m.cache.watchOptionalKinds(h.Detector, o)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("build the scope's cache and client: %w", err)
	}
	return m, nil
}

func (m *Manager) buildCluster(outer manager.Manager) error {
	settings, httpClient := m.cache.managerCache.ScopeSettings(), m.closingHTTPClient(outer.GetHTTPClient())
	var err error
	m.inner, err = cluster.New(outer.GetConfig(), func(o *cluster.Options) {
		o.Scheme, o.HTTPClient, o.Logger = outer.GetScheme(), httpClient, outer.GetLogger()
		// The cluster is never started, so a cache of its own would never sync.
		o.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) { return m.cache, nil }
		o.MapperProvider = func(cfg *rest.Config, hc *http.Client) (meta.RESTMapper, error) {
			m.cache.mapper, err = m.cache.newMapper(cfg, hc)
			return m.cache.mapper, err
		}
		o.Client = settings.Client
		o.Client.HTTPClient = m.closingHTTPClient(settings.Client.HTTPClient)
		o.NewClient = func(cfg *rest.Config, o client.Options) (client.Client, error) {
			direct := client.Options{HTTPClient: httpClient, Scheme: outer.GetScheme(), Mapper: m.cache.mapper}
			if m.apiReader, err = refreshclient.NewClient(cfg, direct, client.New); err != nil {
				return nil, err
			}
			o.Cache.Reader = clientCache{m.cache}
			m.client, err = refreshclient.NewClient(cfg, o, settings.NewClient)
			return m.client, err
		}
	})
	return err
}

// closingHTTPClient returns the HTTP client for the scope.
func (m *Manager) closingHTTPClient(hc *http.Client) *http.Client {
	if hc == nil {
		return nil
	}
	// The outer manager goes on with the original when the scope is closed.
	closing := *hc
	closing.Transport = &closingTransport{base: hc.Transport, lifetime: m.lifetime}
	return &closing
}

// refreshClients replaces mapper and clients, which would never notice that a kind has another plural or scope.
func (m *Manager) refreshClients() {
	m.reportFailure(errors.Join(m.cache.mapper.Refresh(), m.client.Refresh(), m.apiReader.Refresh()))
}

// GetHTTPClient returns a client that refuses requests once the scope is closed.
func (m *Manager) GetHTTPClient() *http.Client { return m.inner.GetHTTPClient() }

// GetCache returns the scope's own cache.
func (m *Manager) GetCache() cache.Cache { return m.cache }

// GetClient returns the scope's own client, which reads from the scope's cache.
func (m *Manager) GetClient() client.Client { return m.client }

// GetAPIReader returns a reader without a cache.
func (m *Manager) GetAPIReader() client.Reader { return m.apiReader }

// GetFieldIndexer returns the indexer of the scope's cache.
func (m *Manager) GetFieldIndexer() client.FieldIndexer { return m.cache }

// GetRESTMapper returns a mapper that knows nothing older than the scope.
func (m *Manager) GetRESTMapper() meta.RESTMapper { return m.cache.mapper }

// GetControllerOptions returns the outer options without the check of names, which are never freed.
func (m *Manager) GetControllerOptions() config.Controller {
	opts := m.Manager.GetControllerOptions()
	opts.SkipNameValidation = new(true)
	return opts
}

// AddHealthzCheck records the check; the group's own check on the outer manager runs it.
func (m *Manager) AddHealthzCheck(name string, check healthz.Checker) error {
	return addRecorded(m, m.healthz, name, check)
}

// AddReadyzCheck records the check; the group's own check on the outer manager runs it.
func (m *Manager) AddReadyzCheck(name string, check healthz.Checker) error {
	return addRecorded(m, m.readyz, name, check)
}

// AddMetricsServerExtraHandler records the handler; the metrics server has it below /debug/conditional/<group>.
func (m *Manager) AddMetricsServerExtraHandler(path string, handler http.Handler) error {
	return addRecorded(m, m.extraHandlers, path, handler)
}

func addRecorded[V any](m *Manager, into map[string]V, name string, v V) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isDraining || m.lifetime.Err() != nil {
		return ErrClosed
	}
	into[name] = v
	return nil
}

// HealthzChecks returns a copy of the recorded checks.
func (m *Manager) HealthzChecks() map[string]healthz.Checker { return cloneRecorded(m, m.healthz) }

// ReadyzChecks returns a copy of the recorded checks.
func (m *Manager) ReadyzChecks() map[string]healthz.Checker { return cloneRecorded(m, m.readyz) }

func cloneRecorded[V any](m *Manager, of map[string]V) map[string]V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(of)
}

// ServeExtra serves the recorded handler of exactly the request's path.
func (m *Manager) ServeExtra(w http.ResponseWriter, r *http.Request) {
	if handler, ok := cloneRecorded(m, m.extraHandlers)[r.URL.Path]; ok {
		handler.ServeHTTP(w, r)
		return
	}
	http.NotFound(w, r)
}

// closingTransport refuses requests after the scope is closed, so that no late worker reaches the API.
type closingTransport struct {
	base     http.RoundTripper
	lifetime context.Context
}

func (t *closingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.lifetime.Err() != nil {
		return nil, ErrClosed
	}
	if t.base == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return t.base.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below, for example to close idle connections.
func (t *closingTransport) WrappedRoundTripper() http.RoundTripper { return t.base }
