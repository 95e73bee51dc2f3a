// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/torpor-dev/torpor/conditional/internal/webhooks"
)

// GetWebhookServer returns the scope's own server: what it serves ends with the scope, but for conversion. The outer
// manager's server is added and started with the first registration here, not before.
func (m *Manager) GetWebhookServer() webhook.Server { return m.webhookServer }

// GetConverterRegistry returns the outer registry, which here bears that a restart registers a kind again.
func (m *Manager) GetConverterRegistry() conversion.Registry {
	return m.webhookServer.multiplexer().ConverterRegistry(m.Manager.GetConverterRegistry())
}

// scopedWebhookServer is a webhook.Server without a listener.
type scopedWebhookServer struct {
	scope  *Manager
	shared *webhooks.ManagerMultiplexers
	owner  *webhooks.PathOwner
	mux    *http.ServeMux // shows the webhook builder which paths this scope has registered

	mu         sync.Mutex
	registered map[string]struct{} // paths
}

func newScopedWebhookServer(m *Manager, shared *webhooks.ManagerMultiplexers, o Options) *scopedWebhookServer {
	return &scopedWebhookServer{
		scope: m, shared: shared,
		owner: &webhooks.PathOwner{Group: o.Group, DormantPolicy: o.DormantPolicy, Ended: m.lifetime.Done()},
		mux:   http.NewServeMux(), registered: map[string]struct{}{},
	}
}

// multiplexer is called on demand only: a manager that is not comparable can have none.
func (s *scopedWebhookServer) multiplexer() *webhooks.Multiplexer {
	return s.shared.ForManager(s.scope.Manager)
}

// Register lets handler answer on path while the scope lives. It has no error to return: in a setup function it panics
// with one, which fails the start; later it fails the group.
func (s *scopedWebhookServer) Register(path string, handler http.Handler) {
	if err := s.registerPath(path, handler); err != nil {
		s.scope.failRegistration(err)
	}
}

func (s *scopedWebhookServer) registerPath(path string, handler http.Handler) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.registered[path]; twice {
		return fmt.Errorf("expected webhook path %s to be registered once in a setup function, found it registered before: remove one", path)
	}
	// The runnable makes a stop wait for requests in flight. A scope without webhooks has none.
	if len(s.registered) == 0 {
		if err := s.scope.Add(manager.RunnableFunc(s.serveUntilDone)); err != nil {
			return err
		}
		context.AfterFunc(s.scope.lifetime, s.owner.ReleasePaths)
	}
	s.registered[path] = struct{}{}
	if err := s.multiplexer().ClaimPath(s.scope.Manager.GetWebhookServer(), path, handler, s.owner); errors.Is(err, webhooks.ErrReleased) {
		return ErrClosed
	} else if err != nil {
		return err
	}
	s.mux.Handle(path, handler)
	return nil
}

// serveUntilDone ends the service before clients and caches close: a stop waits for the requests in flight.
func (s *scopedWebhookServer) serveUntilDone(ctx context.Context) error {
	<-ctx.Done()
	s.owner.ReleasePaths()
	s.owner.WaitForRequests()
	return nil
}

// failRegistration panics only in setup, where the panic is recovered: in a runnable it would end the process.
func (m *Manager) failRegistration(err error) {
	m.mu.Lock()
	inSetup := m.runContext == nil && m.lifetime.Err() == nil
	m.mu.Unlock()
	if inSetup {
		panic(err)
	}
	m.GetLogger().Error(err, "webhook was not registered")
	m.reportFailure(err)
}

// WebhookMux returns a mux of this scope's paths, which is not served.
func (s *scopedWebhookServer) WebhookMux() *http.ServeMux { return s.mux }

// NeedLeaderElection is false, as for any webhook server.
func (*scopedWebhookServer) NeedLeaderElection() bool { return false }

// Start waits for the end: the outer manager runs the server that listens.
func (*scopedWebhookServer) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// StartedChecker checks the outer server once a path is registered.
func (s *scopedWebhookServer) StartedChecker() healthz.Checker {
	return func(r *http.Request) error {
		s.mu.Lock()
		uses := len(s.registered) > 0
		s.mu.Unlock()
		if !uses {
			return nil
		}
		return s.scope.Manager.GetWebhookServer().StartedChecker()(r)
	}
}
