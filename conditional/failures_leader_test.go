// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr/testr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func failuresOfLeading() []row {
	return []row{
		{"26 a standby waits for its turn", (*arena).standby},
		{"26 the leader is lost while a group starts", (*arena).lostLeader},
	}
}

// patient keeps its lease however slow the machine is, and gives it back when it ends. hasty loses it soon when the API
// server does not take it, and then it runs out.
func patient() [2]time.Duration { return [2]time.Duration{time.Hour, patience} }
func hasty() [2]time.Duration   { return [2]time.Duration{12 * time.Second, 2 * time.Second} }

// candidate is a manager that waits for the arena's lease, with a proxy and a group of its own.
type candidate struct {
	*proxy
	mgr  manager.Manager
	g    *Group
	seen chan string
}

// candidate makes one. lasts is how long a lease holds, and how long it tries to renew it.
func (a *arena) candidate(lasts [2]time.Duration, setup func(seen chan string) SetupFunc) *candidate {
	a.t.Helper()
	c := &candidate{proxy: a.proxy(a.cfg), seen: make(chan string, 100)}
	var err error
	c.mgr, err = ctrl.NewManager(c.config(), ctrl.Options{
		Scheme: a.scheme, Metrics: server.Options{BindAddress: "0"}, Logger: testr.New(a.t),
		Controller:     config.Controller{SkipNameValidation: new(true)},
		LeaderElection: true, LeaderElectionID: a.kind.Group, LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &lasts[0], RenewDeadline: &lasts[1], RetryPeriod: new(500 * time.Millisecond),
	})
	if err != nil {
		a.t.Fatal(err)
	}
	c.g = a.groupOf(c.mgr, Served(a.kind), setup(c.seen))
	return c
}

func (a *arena) watchingTo(seen chan string) SetupFunc { return watching(a.kind, seen) }

// standby sees the CRD go and come while it waits.
func (a *arena) standby() {
	leader := a.candidate(patient(), a.watchingTo)
	stop := a.start(leader.mgr)
	a.install(a.def)
	a.wait(leader.g, Running)
	other := a.candidate(patient(), a.watchingTo)
	a.start(other.mgr)
	a.says(other.g, True, "Served")
	a.make("first")
	a.expect(leader.seen, "first")
	a.uninstall(a.def)
	a.gone(a.def)
	a.says(other.g, False, "NotServed")
	a.install(a.def)
	a.says(other.g, True, "Served")
	a.make("second")
	a.expect(leader.seen, "second")
	if phase := other.g.Status().Phase; phase != Dormant || len(other.seen) > 0 || other.asks(a.used) > 0 {
		a.t.Errorf("the standby is %s, with %d reconciles and %d requests to the kind, want nothing", phase, len(other.seen), other.asks(a.used))
	}
	if err := other.g.Checker(RequireRunning)(nil); err != nil {
		a.t.Errorf("the standby is not ready: %v", err)
	}
	stop()
	a.expect(other.seen, "second")
	a.wait(other.g, Running)
	if len(leader.seen) > 0 || a.starts.Load() != 3 {
		a.t.Errorf("the old leader has reconciled %s, %d starts, want 3", <-leader.seen, a.starts.Load())
	}
}

// lostLeader takes the lease away from a leader whose group waits for its informer.
func (a *arena) lostLeader() {
	a.install(a.def)
	a.make("first")
	leases := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/leases") }
	first := a.candidate(hasty(), a.synced)
	first.ail(a.noList())
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	a.t.Cleanup(cancel)
	go func() { ended <- first.mgr.Start(ctx) }()
	a.wait(first.g, Starting)

	overlap := make(chan Phase, 1)
	second := a.candidate(patient(), func(seen chan string) SetupFunc {
		return func(mgr manager.Manager) error {
			overlap <- first.g.Status().Phase
			return a.watchingTo(seen)(mgr)
		}
	})
	a.start(second.mgr)
	a.says(second.g, True, "Served")
	first.ail(on(leases, says(500, "InternalError")))
	if err := <-ended; err == nil {
		a.t.Error("the manager has lost its lease and ended without an error")
	}
	a.expect(second.seen, "first")
	if phase := <-overlap; phase != Dormant {
		a.t.Errorf("the old leader's group was %s when the new one started, want Dormant", phase)
	}
	if len(first.seen) > 0 || a.starts.Load() != 2 {
		a.t.Errorf("%d reconciles by the old leader, %d starts, want none and 2", len(first.seen), a.starts.Load())
	}
}

// noList never answers who wants the objects of the arena's kind.
func (a *arena) noList() fault {
	return on(a.used, func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
}

// synced is a setup function that wants its informer before anything starts.
func (a *arena) synced(seen chan string) SetupFunc {
	return func(mgr manager.Manager) error {
		if _, err := mgr.GetCache().GetInformer(a.t.Context(), objectOf(a.kind, "")); err != nil {
			return err
		}
		return watching(a.kind, seen)(mgr)
	}
}
