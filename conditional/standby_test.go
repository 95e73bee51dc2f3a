// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/testr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/torpor-dev/torpor/conditional/internal/scope"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// standbyReplica is one of several managers of a deployment.
type standbyReplica struct {
	manager.Manager
	group  *Group
	seen   chan string
	looked *atomic.Int64 // requests for Widgets that list or watch
	stop   func()        // ends it and gives the lease back
}

// replica returns a replica that runs, and waits for its turn to lead.
func (s *apiServer) replica(opts ...Option) *standbyReplica {
	s.t.Helper()
	r := &standbyReplica{seen: make(chan string, 100), looked: &atomic.Int64{}}
	cfg := rest.CopyConfig(s.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/widgets") {
				r.looked.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	var err error
	r.Manager, err = ctrl.NewManager(cfg, ctrl.Options{
		Scheme: s.scheme, Metrics: server.Options{BindAddress: "0"}, Logger: testr.New(s.t),
		Controller:     config.Controller{SkipNameValidation: new(true)},
		LeaderElection: true, LeaderElectionID: "replicas", LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
	})
	testenv.Must(s.t, err)
	r.group = s.setUp(r.Manager, watching(widgetKind(), r.seen), opts...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Start(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("a manager ended with: %v", err)
		}
		done <- nil
		r.GetHTTPClient().CloseIdleConnections()
	}
	s.t.Cleanup(func() { r.stop() })
	return r
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAWarmStandbyListsNothingWhenItTakesOver(t *testing.T) {
	s := startAPIServer(t)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	leader := s.replica()
	s.eventually("the first replica leads", func(context.Context) (bool, error) {
		select {
		case <-leader.Elected():
			return true, nil
		default:
			return false, nil
		}
	})
	standby := s.replica(WarmStandby(newWidget()))
	s.installCRD(def)
	s.waitForPhase(leader.group, Running)
	s.createWidgetIn("default", "first")
	s.expectReconcile(leader.seen, "first")
	s.expectHeld(standby, 1)
	s.synced(standby)
	if got := standby.group.Status().Phase; got != Dormant || len(standby.seen) > 0 {
		t.Errorf("the standby is %s and has reconciled %d times, want Dormant and never", got, len(standby.seen))
	}

	t.Log("The standby follows the kind.")
	s.uninstallCRD(def)
	s.waitUntilGone(def)
	s.expectHeld(standby, 0)
	s.installCRD(def)
	s.createWidgetIn("default", "second")
	s.expectReconcile(leader.seen, "second")
	s.expectHeld(standby, 1)
	s.synced(standby)

	t.Log("It takes over with what it has.")
	looked := standby.looked.Load()
	leader.stop()
	s.waitForPhase(standby.group, Running)
	s.expectReconcile(standby.seen, "second")
	s.createWidgetIn("default", "third")
	s.expectReconcile(standby.seen, "third")
	if more := standby.looked.Load() - looked; more > 0 {
		t.Errorf("the standby made %d lists or watches when it took over, want none", more)
	}
	s.expectHeld(standby, 1)
	s.uninstallCRD(def)
	s.waitForPhase(standby.group, Dormant)
	s.expectHeld(standby, 0)
}

// expectHeld waits until a replica runs so many informers.
func (s *apiServer) expectHeld(r *standbyReplica, informers int) {
	s.t.Helper()
	s.eventually("the replica has the informers that it should have", func(context.Context) (bool, error) {
		return r.group.server.Informers.InformerCount() == informers, nil
	})
}

// synced waits until the standby's informer has listed what there is: a second use of it can read then.
func (s *apiServer) synced(r *standbyReplica) {
	s.t.Helper()
	c, release, err := scope.NewCache(r, r.group.server, scope.Options{})
	testenv.Must(s.t, err)
	defer release()
	if err := c.Get(s.t.Context(), client.ObjectKey{Namespace: "default", Name: "none"}, newWidget()); client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	s.expectHeld(r, 1)
}
