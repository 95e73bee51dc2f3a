// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// What follows needs neither an API server nor a listener: requests go straight to the mux of the manager's server.

// saying is a handler that answers with a text, and a setup function that registers it.
func saying(text string, paths ...string) SetupFunc {
	return func(mgr manager.Manager) error {
		for _, path := range paths {
			mgr.GetWebhookServer().Register(path, say(text))
		}
		return nil
	}
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

// pathEnv is a manager that runs without a network, and its groups.
type pathEnv struct {
	*apiServer
	mux *http.ServeMux
	mgr manager.Manager
}

func newPathEnv(t *testing.T) *pathEnv {
	t.Helper()
	r := &pathEnv{apiServer: &apiServer{t: t}, mux: http.NewServeMux()}
	r.mgr = hookManager(t, &rest.Config{Host: "127.0.0.1:1"}, runtime.NewScheme(), webhook.Options{Port: -1, WebhookMux: r.mux})
	return r
}

func (r *pathEnv) group(name string, setup SetupFunc) (*Group, func(State, Phase)) {
	r.t.Helper()
	when := switchedCondition{says: make(chan Status)}
	g, err := Setup(r.mgr, when, setup, Name(name), StartBackoff(wait.Backoff{Duration: 20 * time.Millisecond}))
	if err != nil {
		r.t.Fatal(err)
	}
	return g, func(state State, phase Phase) {
		r.t.Helper()
		when.says <- Status{State: state}
		r.waitForPhase(g, phase)
	}
}

// ask returns the status and the body of the answer on a path.
func (r *pathEnv) ask(path string) string {
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, path, http.NoBody))
	return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()))
}

func (r *pathEnv) want(path, answer string) {
	r.t.Helper()
	if diff := cmp.Diff(answer, r.ask(path)); diff != "" {
		r.t.Errorf("answer on %s (-want +got):\n%s", path, diff)
	}
}

// failsWith waits for an error, which may be seen after a later try has begun.
func (r *pathEnv) failsWith(g *Group, text string) {
	r.t.Helper()
	r.eventually("the group has failed", func(context.Context) (bool, error) { return g.Status().Error != "", nil })
	if got := g.Status().Error; !strings.Contains(got, text) {
		r.t.Errorf("group failed with %q, want something with %q", got, text)
	}
}

func TestTwoGroupsOnOnePath(t *testing.T) {
	r := newPathEnv(t)
	_, first := r.group("first", saying("first", "/hook"))
	second, turn := r.group("second", saying("second", "/hook", "/other"))
	r.startManager(r.mgr)
	first(True, Running)
	turn(True, Failed)
	r.failsWith(second, `expected webhook path /hook to be free, found it taken by the running conditional group`)
	r.want("/hook", "200 first")
	first(False, Dormant)
	r.waitForPhase(second, Running)
	r.want("/hook", "200 second")
	r.want("/other", "200 second")
}

func TestAPathThatTheManagerServesItself(t *testing.T) {
	r := newPathEnv(t)
	group, turn := r.group("group", saying("group", "/hook"))
	neighbour, turnNeighbour := r.group("neighbour", saying("neighbour", "/other"))
	r.mgr.GetWebhookServer().Register("/hook", say("outside"))
	r.startManager(r.mgr)
	turn(True, Failed)
	r.failsWith(group, "expected webhook path /hook to be free on the manager's webhook server")
	r.want("/hook", "200 outside")
	turnNeighbour(True, Running)
	r.want("/other", "200 neighbour")
	if err := neighbour.Checker(RequireRunning)(nil); err != nil {
		t.Error(err)
	}
}

// TestARunnableThatRegistersATakenPath would end the process if the panic of a webhook server reached the runnable.
func TestARunnableThatRegistersATakenPath(t *testing.T) {
	r := newPathEnv(t)
	group, turn := r.group("group", func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			mgr.GetWebhookServer().Register("/hook", say("group"))
			<-ctx.Done()
			return nil
		}))
	})
	r.mgr.GetWebhookServer().Register("/hook", say("outside"))
	r.startManager(r.mgr)
	turn(True, Failed)
	r.failsWith(group, "expected webhook path /hook to be free")
	turn(False, Dormant)
}

func TestAStopWaitsForTheRequestInFlight(t *testing.T) {
	r := newPathEnv(t)
	came, goOn := make(chan struct{}, 1), make(chan struct{})
	group, turn := r.group("group", func(mgr manager.Manager) error {
		mgr.GetWebhookServer().Register("/hook", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			select {
			case came <- struct{}{}:
				<-goOn // The first one only.
			default:
			}
		}))
		return nil
	})
	r.startManager(r.mgr)
	turn(True, Running)
	answered := make(chan string)
	go func() { answered <- r.ask("/hook") }()
	r.eventually("the request is being handled", func(context.Context) (bool, error) { return len(came) == 1, nil })
	turn(False, Draining)
	r.eventually("the path is dormant", func(context.Context) (bool, error) { return strings.HasPrefix(r.ask("/hook"), "503 "), nil })
	if got := group.Status().Phase; got != Draining {
		t.Errorf("group is %s with a request in flight, want it Draining", got)
	}
	close(goOn)
	r.waitForPhase(group, Dormant)
	if got := <-answered; got != "200 " {
		t.Errorf("the request in flight was answered with %q, want its handler's 200", got)
	}
}

// TestMissingCertificates shows what cannot be kept from the manager: its own server ends it, with an error that names
// the file.
func TestMissingCertificates(t *testing.T) {
	mgr := hookManager(t, &rest.Config{Host: "127.0.0.1:1"}, runtime.NewScheme(), webhook.Options{Host: "127.0.0.1", CertDir: t.TempDir()})
	when := switchedCondition{says: make(chan Status, 1)}
	if _, err := Setup(mgr, when, saying("group", "/hook")); err != nil {
		t.Fatal(err)
	}
	when.says <- Status{State: True}
	if err := mgr.Start(t.Context()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "tls.crt") {
		t.Errorf("manager ended with %v, want an error that names the missing certificate", err)
	}
}
