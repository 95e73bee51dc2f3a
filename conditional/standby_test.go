// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/scope"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// standbyReplica is one of several managers of a deployment.
type standbyReplica struct {
	*faultyProxy
	manager.Manager
	group *Group
	seen  chan string
	stop  func() // ends it and gives the lease back
}

// replica returns a replica that runs, and waits for its turn to lead.
func (s *apiServer) replica(opts ...Option) *standbyReplica {
	s.t.Helper()
	r := &standbyReplica{faultyProxy: s.newProxy(s.cfg), seen: make(chan string, 100)}
	r.Manager = s.newManagerFor(r.config(), electing("replicas"))
	r.group = s.setUp(r.Manager, watching(widgetKind(), r.seen), opts...)
	r.stop = s.startManager(r.Manager)
	return r
}

// electing makes a manager wait for a lease.
func electing(id string) func(*ctrl.Options) {
	return func(o *ctrl.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace, o.LeaderElectionReleaseOnCancel = true, id, "default", true
	}
}

// widgetRequests counts the lists and watches of Widgets.
func (r *standbyReplica) widgetRequests() int {
	return r.countRequests(func(req *http.Request) bool {
		return req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/widgets")
	})
}

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
	looked := standby.widgetRequests()
	leader.stop()
	s.waitForPhase(standby.group, Running)
	s.expectReconcile(standby.seen, "second")
	s.createWidgetIn("default", "third")
	s.expectReconcile(standby.seen, "third")
	if more := standby.widgetRequests() - looked; more > 0 {
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
