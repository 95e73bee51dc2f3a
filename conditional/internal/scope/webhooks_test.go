// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/torpor-dev/torpor/conditional/internal/serverstate"
)

// fakeManager is as much of a manager as a scope needs; it counts how often its webhook server was asked for.
type fakeManager struct {
	manager.Manager
	server *fakeWebhookServer
	asked  int
}

func (o *fakeManager) GetCache() cache.Cache                   { return nil }
func (o *fakeManager) GetConfig() *rest.Config                 { return &rest.Config{Host: "127.0.0.1:1"} }
func (o *fakeManager) GetHTTPClient() *http.Client             { return &http.Client{} }
func (o *fakeManager) GetScheme() *runtime.Scheme              { return runtime.NewScheme() }
func (o *fakeManager) GetLogger() logr.Logger                  { return logr.Discard() }
func (o *fakeManager) GetWebhookServer() webhook.Server        { o.asked++; return o.server }
func (l *fakeWebhookServer) Register(p string, _ http.Handler) { l.paths = append(l.paths, p) }

type fakeWebhookServer struct {
	webhook.Server
	paths []string
}

var errNotStarted = errors.New("not started")

func (*fakeWebhookServer) StartedChecker() healthz.Checker {
	return func(*http.Request) error { return errNotStarted }
}

func newScope(t *testing.T) (*Manager, *fakeManager) {
	t.Helper()
	o := &fakeManager{server: &fakeWebhookServer{}}
	m, err := New(o, &serverstate.SharedState{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, o
}

func TestOnlyARegistrationTouchesTheOuterServer(t *testing.T) {
	m, o := newScope(t)
	server := m.GetWebhookServer()
	if server.WebhookMux() == nil || server.NeedLeaderElection() {
		t.Error("want a mux, and a server for every replica")
	}
	if err := server.StartedChecker()(nil); err != nil {
		t.Errorf("check without a webhook: %v, want none", err)
	}
	if o.asked != 0 {
		t.Fatal("the outer server was asked for, which adds it to the manager")
	}
	server.Register("/hook", http.NotFoundHandler())
	if o.asked == 0 || len(o.server.paths) != 1 {
		t.Errorf("the outer server was asked for %d times and has %q, want /hook there", o.asked, o.server.paths)
	}
	if err := server.StartedChecker()(nil); !errors.Is(err, errNotStarted) {
		t.Errorf("check with a webhook: %v, want that of the outer server", err)
	}
}

func TestAPathTwiceInOneSetup(t *testing.T) {
	m, _ := newScope(t)
	m.GetWebhookServer().Register("/hook", http.NotFoundHandler())
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "/hook") {
			t.Errorf("panicked with %v, want an error that names the path", err)
		}
	}()
	m.GetWebhookServer().Register("/hook", http.NotFoundHandler())
}

func TestARegistrationAfterTheEnd(t *testing.T) {
	m, o := newScope(t)
	m.Close()
	m.GetWebhookServer().Register("/hook", http.NotFoundHandler()) // A panic would end the process.
	if err := <-m.failed; !errors.Is(err, ErrClosed) || o.asked != 0 {
		t.Errorf("registration failed with %v and asked %d times for the outer server, want %v and none", err, o.asked, ErrClosed)
	}
}
