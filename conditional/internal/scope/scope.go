// SPDX-License-Identifier: Apache-2.0

// Package scope contains the manager that one activation of a conditional group receives: a wrapped manager.Manager
// whose cache, client and runnables end with the activation, and reject every use after that.
package scope

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/torpor-dev/torpor/conditional/internal/delegatingmanager"
	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/process"
)

// ErrClosed is returned by a scope after its activation has ended.
var ErrClosed = errors.New("the scope of this conditional controller is closed: " +
	"use the clients and caches of the manager that setup received last")

// Options are a group's settings for its scopes.
type Options struct {
	// Optional lists the kinds that may appear and disappear during the lifetime of the scope, and how the detector may
	// observe them.
	Optional detect.Interest
	// CacheOptions, if not nil, changes the options of the cache, which then does not share informers.
	CacheOptions func(*cache.Options)
	// UseQueue, if not nil, is called when a controller of the scope has created its queue. Its error ends the scope.
	UseQueue func(ControllerQueue) error
}

// Manager is the manager of one activation. Its zero value is not usable.
type Manager struct {
	manager.Manager                                        // the outer manager
	inner             cluster.Cluster                      // inner is never started; it holds the clients and the cache
	cache             *scopedCache                         // cache is the cache of the scope
	client, apiReader *delegatingmanager.RefreshableClient // the client of the scope, and its client without a cache
	lifetime          context.Context                      // lifetime is cancelled when the scope is closed
	over              context.Context                      // over is cancelled when the runnables must end
	endWith           context.CancelCauseFunc              // endWith ends the scope; the first cause counts
	Close             func()                               // Close cancels lifetime and returns the leases, without waiting; may be called again

	mu         sync.Mutex
	queued     []manager.Runnable
	queues     []*trackedQueue // queues are the queues of the scope's controllers
	useQueue   func(ControllerQueue) error
	registry   *process.Registry
	runContext context.Context // runContext is the context of the runnables; nil before Run
	isDraining bool
	running    sync.WaitGroup
	healthz    map[string]healthz.Checker
	readyz     map[string]healthz.Checker
}

// New returns a scope with the outer manager's config, HTTP client and scheme, and with the informers that groups of
// the API server share. It sends no request.
func New(outer manager.Manager, h *process.SharedState, o Options) (*Manager, error) {
	m := &Manager{
		Manager:  outer,
		healthz:  map[string]healthz.Checker{},
		readyz:   map[string]healthz.Checker{},
		useQueue: o.UseQueue,
		registry: h.Registry,
	}
	var endLife context.CancelFunc
	m.lifetime, endLife = context.WithCancel(context.Background())
	m.over, m.endWith = context.WithCancelCause(context.Background())
	m.cache = newScopedCache(m.lifetime, outer, h, o)
	m.cache.reportError, m.cache.refreshClients = m.reportFailure, m.refreshClients
	m.Close = sync.OnceFunc(func() { endLife(); m.cache.close() })
	if err := m.buildCluster(outer); err != nil {
		m.Close()
		return nil, fmt.Errorf("build the scope's cache and client: %w", err)
	}
	m.cache.watchOptionalKinds(h.Detector, o)
	return m, nil
}

func (m *Manager) buildCluster(outer manager.Manager) error {
	settings, httpClient := m.cache.managerCache.ScopeSettings(), m.closingHTTPClient(outer.GetHTTPClient())
	var err error
	m.inner, err = cluster.New(outer.GetConfig(), func(o *cluster.Options) {
		o.Scheme, o.HTTPClient, o.Logger = outer.GetScheme(), httpClient, outer.GetLogger()
		// The cluster is never started, so its own cache would never sync.
		o.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) { return m.cache, nil }
		o.MapperProvider = func(cfg *rest.Config, hc *http.Client) (meta.RESTMapper, error) {
			m.cache.mapper, err = m.cache.newMapper(cfg, hc)
			return m.cache.mapper, err
		}
		o.Client = settings.Client
		o.Client.HTTPClient = m.closingHTTPClient(settings.Client.HTTPClient)
		o.NewClient = func(cfg *rest.Config, o client.Options) (client.Client, error) {
			direct := client.Options{HTTPClient: httpClient, Scheme: outer.GetScheme(), Mapper: m.cache.mapper}
			if m.apiReader, err = delegatingmanager.NewRefreshableClient(cfg, direct, client.New); err != nil {
				return nil, err
			}
			o.Cache.Reader = clientCache{m.cache}
			m.client, err = delegatingmanager.NewRefreshableClient(cfg, o, settings.NewClient)
			return m.client, err
		}
	})
	return err
}

func (m *Manager) closingHTTPClient(hc *http.Client) *http.Client {
	if hc == nil {
		return nil
	}
	// The outer manager continues to use the original client after the scope is closed.
	closing := *hc
	closing.Transport = &closingTransport{base: hc.Transport, lifetime: m.lifetime}
	return &closing
}

// refreshClients replaces the mapper and the clients, because they would never detect that the plural or scope of a
// kind has changed.
func (m *Manager) refreshClients() {
	m.reportFailure(errors.Join(m.cache.mapper.Refresh(), m.client.Refresh(), m.apiReader.Refresh()))
}

// GetHTTPClient returns a client that rejects requests once the scope is closed.
func (m *Manager) GetHTTPClient() *http.Client { return m.inner.GetHTTPClient() }

func (m *Manager) GetCache() cache.Cache { return m.cache }

func (m *Manager) GetClient() client.Client { return m.client }

func (m *Manager) GetAPIReader() client.Reader { return m.apiReader }

func (m *Manager) GetFieldIndexer() client.FieldIndexer { return m.cache }

// GetRESTMapper returns a mapper that has cached no results from before the scope.
func (m *Manager) GetRESTMapper() meta.RESTMapper { return m.cache.mapper }

// GetControllerOptions returns the outer options without the validation of names, because controller-runtime never
// frees a name.
func (m *Manager) GetControllerOptions() config.Controller {
	opts := m.Manager.GetControllerOptions()
	opts.SkipNameValidation = new(true)
	return opts
}

// AddHealthzCheck records the check. The check of the groups on the outer manager runs it.
func (m *Manager) AddHealthzCheck(name string, check healthz.Checker) error {
	return m.recordCheck(m.healthz, name, check)
}

// AddReadyzCheck records the check. The check of the groups on the outer manager runs it.
func (m *Manager) AddReadyzCheck(name string, check healthz.Checker) error {
	return m.recordCheck(m.readyz, name, check)
}

// AddMetricsServerExtraHandler fails, because the metrics server serves a path on every replica and for its whole
// lifetime.
func (m *Manager) AddMetricsServerExtraHandler(path string, _ http.Handler) error {
	return fmt.Errorf("expected handlers of the metrics server to be set up with the outer manager, found %s in a conditional group, which runs on the leader only: add it in main.go", path)
}

func (m *Manager) recordCheck(into map[string]healthz.Checker, name string, check healthz.Checker) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isDraining || m.lifetime.Err() != nil {
		return ErrClosed
	}
	into[name] = check
	return nil
}

func (m *Manager) HealthzChecks() map[string]healthz.Checker { return m.cloneChecks(m.healthz) }

func (m *Manager) ReadyzChecks() map[string]healthz.Checker { return m.cloneChecks(m.readyz) }

func (m *Manager) cloneChecks(of map[string]healthz.Checker) map[string]healthz.Checker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(of)
}

// closingTransport rejects requests after the scope is closed, so no late worker can reach the API server.
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

// WrappedRoundTripper allows client-go to find the wrapped transport, for example to close idle connections.
func (t *closingTransport) WrappedRoundTripper() http.RoundTripper { return t.base }

// Add adds a runnable. It is started by Run, or immediately if Run was already called.
func (m *Manager) Add(r manager.Runnable) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.isDraining || m.lifetime.Err() != nil:
		return ErrClosed
	case m.runContext == nil:
		m.trackQueue(r)
		m.queued = append(m.queued, r)
	default:
		m.trackQueue(r)
		m.launchRunnable(r)
	}
	return nil
}

// Start always fails, because the group runs its scope.
func (m *Manager) Start(context.Context) error {
	return errors.New("a conditional controller's setup must not start the manager it was given: add runnables to it and return")
}

// Progress contains the callbacks of Run.
type Progress struct {
	Up, Broke func() // Up is called when all runnables have been started, and Broke when a runnable has failed
	// Dropped is called with the number of requests that were left when Drain reached DrainTimeout.
	Dropped      func(int)
	DrainTimeout time.Duration
	// Ended is the last callback. It is called when all runnables and event handlers have returned, with nil after a
	// stop, or with the first error of a runnable. At that time the scope is closed.
	Ended func(error)
}

var (
	errStopped  = errors.New("the scope was stopped")
	errDraining = errors.New("the scope was drained")
)

// Run starts the cache and then the runnables, and returns. The runnables end with ctx, with Drain, or with the first
// error. A scope has no goroutine that waits for them.
func (m *Manager) Run(ctx context.Context, p Progress) {
	ctx, cancel := context.WithCancel(ctx)
	m.cache.allowReads()
	if err := m.waitForEarlySync(ctx); err != nil {
		m.endWith(err)
	}
	isUp := ctx.Err() == nil && m.over.Err() == nil
	if isUp {
		m.launchQueued(ctx)
		p.Up()
	}
	context.AfterFunc(ctx, func() { m.endWith(errStopped) })
	context.AfterFunc(m.over, func() {
		err := context.Cause(m.over)
		switch {
		case errors.Is(err, errDraining):
			m.drainWithin(ctx, p)
			err = nil
		case errors.Is(err, errStopped):
			err = nil
		case isUp:
			p.Broke()
		}
		cancel()
		m.finish()
		p.Ended(err)
	})
}

// finish waits for the runnables, whose context has been cancelled, and then closes the scope.
func (m *Manager) finish() {
	m.mu.Lock()
	m.isDraining = true
	m.mu.Unlock()
	// Remove the handlers before the runnables have returned, because an event must not reach the queue of a controller
	// that has returned.
	m.cache.removeHandlers()
	m.running.Wait()
	m.endQueues()
	m.End()
}

// Drain asks the runnables to end, as the cancellation of Run's context does, but lets the controllers reconcile queued
// requests first.
func (m *Manager) Drain() { m.endWith(errDraining) }

func (m *Manager) drainWithin(ctx context.Context, p Progress) {
	timed, cancel := context.WithTimeout(ctx, p.DrainTimeout)
	defer cancel()
	if dropped := m.drain(timed); dropped > 0 && ctx.Err() == nil {
		p.Dropped(dropped)
	}
}

// End closes the scope and returns when all event handlers have returned. A handler must not call it.
func (m *Manager) End() {
	m.Close()
	m.cache.waitStopped()
}

// waitForEarlySync waits for the informers that setup has requested, as the outer manager would.
func (m *Manager) waitForEarlySync(ctx context.Context) error {
	limit := m.GetControllerOptions().CacheSyncTimeout
	// controller-runtime has the same default.
	if limit <= 0 {
		limit = 2 * time.Minute
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if !m.cache.waitForInformers(timed) && ctx.Err() == nil && m.lifetime.Err() == nil {
		return fmt.Errorf("an informer that setup asked for has not synced within %s: check that its kind is served and may be listed and watched", limit)
	}
	return nil
}

func (m *Manager) launchQueued(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runContext = delegatingmanager.WithScope(ctx, m.cache.managerCache, delegatingmanager.Scope{Cache: m.cache, Client: m.client, APIReader: m.apiReader})
	for _, r := range m.queued {
		m.launchRunnable(r)
	}
	m.queued = nil
}

// launchRunnable is called with the lock held, so Run cannot start to wait while a runnable is being added.
func (m *Manager) launchRunnable(r manager.Runnable) {
	ctx := m.runContext
	m.running.Go(func() {
		err := r.Start(ctx)
		// An error after the stop describes the end of the runnable, not the cause of the stop.
		if ctx.Err() == nil {
			m.reportFailure(err)
		} else if err != nil && !errors.Is(err, context.Canceled) {
			m.GetLogger().Error(err, "runnable of a stopped conditional controller returned an error")
		}
	})
}

func (m *Manager) reportFailure(err error) {
	switch {
	case err == nil:
	case m.over.Err() == nil:
		m.endWith(err)
	default:
		m.GetLogger().Error(err, "another error while stopping a conditional controller")
	}
}

// outsideWebhooks rejects webhooks. A scope exists only on the leader and ends at a stop, but a webhook's Service calls
// every replica at any time.
type outsideWebhooks struct {
	webhook.Server
	scope *Manager
}

// GetWebhookServer returns a server that rejects every webhook. It does not use the outer manager's server, because
// that would start the server.
func (m *Manager) GetWebhookServer() webhook.Server {
	return outsideWebhooks{webhook.NewServer(webhook.Options{WebhookMux: http.NewServeMux()}), m}
}

// GetConverterRegistry returns an empty registry, because the outer one has no lock and accepts each kind only once.
func (m *Manager) GetConverterRegistry() conversion.Registry { return conversion.NewRegistry() }

// WebhookMux returns an empty mux, which the webhook builder queries before it registers.
func (outsideWebhooks) WebhookMux() *http.ServeMux { return http.NewServeMux() }

// Register rejects a webhook. It cannot return an error. While the setup function runs, it panics, so the start of the
// group fails. Later, it reports the error as a failure of the group.
func (w outsideWebhooks) Register(path string, _ http.Handler) {
	err := fmt.Errorf("expected webhooks to be set up with the outer manager, found %s in a conditional group, which runs on the leader only: "+
		"call ctrl.NewWebhookManagedBy in main.go, see docs/manual.md of the module conditional", path)
	w.scope.mu.Lock()
	inSetup := w.scope.runContext == nil && w.scope.lifetime.Err() == nil
	w.scope.mu.Unlock()
	if inSetup {
		panic(err)
	}
	w.scope.reportFailure(err)
}
