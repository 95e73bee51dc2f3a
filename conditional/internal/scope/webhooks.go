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
func (m *Manager) GetWebhookServer() webhook.Server { return m.webhooks }

// GetConverterRegistry returns the outer registry, which here bears that a restart registers a kind again.
func (m *Manager) GetConverterRegistry() conversion.Registry {
	return m.webhooks.paths().Registry(m.Manager.GetConverterRegistry())
}

// hookServer is a webhook.Server without a listener.
type hookServer struct {
	scope  *Manager
	shared *webhooks.Managers
	tenant *webhooks.Tenant
	mux    *http.ServeMux // only tells the webhook builder what this scope has registered

	mu   sync.Mutex
	mine map[string]struct{} // paths
}

func newHookServer(m *Manager, shared *webhooks.Managers, o Options) *hookServer {
	return &hookServer{
		scope: m, shared: shared,
		tenant: &webhooks.Tenant{Group: o.Group, Dormant: o.Dormant, Ended: m.life.Done()},
		mux:    http.NewServeMux(), mine: map[string]struct{}{},
	}
}

// paths are asked for by those who need them only: a manager must be comparable to have some.
func (s *hookServer) paths() *webhooks.Multiplexer { return s.shared.Of(s.scope.Manager) }

// Register lets handler answer on path while the scope lives. It has no error to return: in a setup function it panics
// with one, which fails the start; later it fails the group.
func (s *hookServer) Register(path string, handler http.Handler) {
	if err := s.register(path, handler); err != nil {
		s.scope.refuse(err)
	}
}

func (s *hookServer) register(path string, handler http.Handler) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.mine[path]; twice {
		return fmt.Errorf("expected webhook path %s to be registered once in a setup function, found it registered before: remove one", path)
	}
	if len(s.mine) == 0 {
		if err := s.scope.Add(manager.RunnableFunc(s.serve)); err != nil {
			return err
		}
		context.AfterFunc(s.scope.life, s.tenant.Leave)
	}
	s.mine[path] = struct{}{}
	if err := s.paths().Claim(s.scope.Manager.GetWebhookServer(), path, handler, s.tenant); errors.Is(err, webhooks.ErrLeft) {
		return ErrClosed
	} else if err != nil {
		return err
	}
	s.mux.Handle(path, handler)
	return nil
}

// serve ends the service before clients and caches close: a stop waits for the requests in flight.
func (s *hookServer) serve(ctx context.Context) error {
	<-ctx.Done()
	s.tenant.Leave()
	s.tenant.Wait()
	return nil
}

// refuse must not panic where nobody recovers it: in a runnable that would end the process.
func (m *Manager) refuse(err error) {
	m.mu.Lock()
	inSetup := m.run == nil && m.life.Err() == nil
	m.mu.Unlock()
	if inSetup {
		panic(err)
	}
	m.GetLogger().Error(err, "webhook was not registered")
	m.fail(err)
}

// WebhookMux returns a mux of this scope's paths. Nothing serves it.
func (s *hookServer) WebhookMux() *http.ServeMux { return s.mux }

// NeedLeaderElection is false, as for any webhook server.
func (*hookServer) NeedLeaderElection() bool { return false }

// Start waits for the end: the outer manager runs the server that listens.
func (*hookServer) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// StartedChecker checks the outer server once a path is registered.
func (s *hookServer) StartedChecker() healthz.Checker {
	return func(r *http.Request) error {
		s.mu.Lock()
		uses := len(s.mine) > 0
		s.mu.Unlock()
		if !uses {
			return nil
		}
		return s.scope.Manager.GetWebhookServer().StartedChecker()(r)
	}
}
