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

	"github.com/torpor-dev/torpor/conditional/internal/hub"
)

// ErrClosed is the answer of a scope after its activation has ended.
var ErrClosed = errors.New("the scope of this conditional controller is closed: take clients and caches from the manager that setup was given last")

// Manager is the scoped manager. Its zero value is not usable.
type Manager struct {
	manager.Manager                 // the outer one
	inner           cluster.Cluster // never started as a whole: only its cache is
	life            context.Context // of the cache; its end closes the scope
	Close           func()          // ends life; it may be called more than once

	mu       sync.Mutex
	queued   []manager.Runnable
	run      context.Context // of the runnables, nil before Run
	draining bool
	running  sync.WaitGroup
	failed   chan error // room for the first error
	healthz  map[string]healthz.Checker
	readyz   map[string]healthz.Checker
	extra    map[string]http.Handler
	webhooks *server
}

// New returns a scope with the outer manager's config, HTTP client and scheme. It makes no request.
func New(outer manager.Manager, h *hub.Hub, _ []schema.GroupVersionKind) (*Manager, error) {
	m := &Manager{
		Manager: outer,
		failed:  make(chan error, 1),
		healthz: map[string]healthz.Checker{},
		readyz:  map[string]healthz.Checker{},
		extra:   map[string]http.Handler{},
	}
	m.life, m.Close = context.WithCancel(context.Background())
	m.webhooks = newServer(m, &h.Webhooks)
	httpClient := *outer.GetHTTPClient()
	httpClient.Transport = &transport{base: httpClient.Transport, life: m.life}
	var err error
	m.inner, err = cluster.New(outer.GetConfig(), func(o *cluster.Options) {
		o.Scheme, o.HTTPClient, o.Logger = outer.GetScheme(), &httpClient, outer.GetLogger()
		o.NewCache = m.newCache
	})
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("build the scope's cache and client: %w", err)
	}
	return m, nil
}

func (m *Manager) newCache(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
	opts.NewInformer = newInformer
	inner, err := cache.New(cfg, opts)
	if err != nil {
		return nil, err
	}
	return &scopedCache{Cache: inner, life: m.life, started: make(chan struct{})}, nil
}

// GetHTTPClient returns a client that refuses requests once the scope is closed.
func (m *Manager) GetHTTPClient() *http.Client { return m.inner.GetHTTPClient() }

// GetCache returns the scope's own cache.
func (m *Manager) GetCache() cache.Cache { return m.inner.GetCache() }

// GetClient returns the scope's own client, which reads from the scope's cache.
func (m *Manager) GetClient() client.Client { return m.inner.GetClient() }

// GetAPIReader returns a reader without a cache.
func (m *Manager) GetAPIReader() client.Reader { return m.inner.GetAPIReader() }

// GetFieldIndexer returns the indexer of the scope's cache.
func (m *Manager) GetFieldIndexer() client.FieldIndexer { return m.inner.GetFieldIndexer() }

// GetRESTMapper returns a mapper that knows nothing older than the scope.
func (m *Manager) GetRESTMapper() meta.RESTMapper { return m.inner.GetRESTMapper() }

// GetControllerOptions returns the outer options without the check of names, which are never freed.
func (m *Manager) GetControllerOptions() config.Controller {
	opts := m.Manager.GetControllerOptions()
	opts.SkipNameValidation = new(true)
	return opts
}

// AddHealthzCheck records the check; the group's own check on the outer manager runs it.
func (m *Manager) AddHealthzCheck(name string, check healthz.Checker) error {
	return record(m, m.healthz, name, check)
}

// AddReadyzCheck records the check; the group's own check on the outer manager runs it.
func (m *Manager) AddReadyzCheck(name string, check healthz.Checker) error {
	return record(m, m.readyz, name, check)
}

// AddMetricsServerExtraHandler records the handler; the metrics server has it below /debug/conditional/<group>.
func (m *Manager) AddMetricsServerExtraHandler(path string, handler http.Handler) error {
	return record(m, m.extra, path, handler)
}

func record[V any](m *Manager, into map[string]V, name string, v V) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining || m.life.Err() != nil {
		return ErrClosed
	}
	into[name] = v
	return nil
}

// HealthzChecks returns a copy of the recorded checks.
func (m *Manager) HealthzChecks() map[string]healthz.Checker { return snapshot(m, m.healthz) }

// ReadyzChecks returns a copy of the recorded checks.
func (m *Manager) ReadyzChecks() map[string]healthz.Checker { return snapshot(m, m.readyz) }

func snapshot[V any](m *Manager, of map[string]V) map[string]V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(of)
}

// ServeExtra serves the recorded handler of exactly the request's path.
func (m *Manager) ServeExtra(w http.ResponseWriter, r *http.Request) {
	if handler, ok := snapshot(m, m.extra)[r.URL.Path]; ok {
		handler.ServeHTTP(w, r)
		return
	}
	http.NotFound(w, r)
}

// transport refuses requests after the scope is closed, so that no informer or late worker reaches the API.
type transport struct {
	base http.RoundTripper
	life context.Context
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.life.Err() != nil {
		return nil, ErrClosed
	}
	if t.base == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return t.base.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below, for example to close idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.base }
