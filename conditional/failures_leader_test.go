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

func failuresOfLeading() []failureTest {
	return []failureTest{
		{"26 a standby starts only after the leader has stopped", (*failureEnv).standby},
		{"26 a group that was starting ends when its leader is lost", (*failureEnv).lostLeader},
	}
}

// patientLease keeps its lease however slow the machine is, and gives it back when it ends. hasty loses it soon when the API
// server does not take it, and then it runs out.
func patientLease() [2]time.Duration { return [2]time.Duration{time.Hour, patience} }
func hastyLease() [2]time.Duration   { return [2]time.Duration{12 * time.Second, 2 * time.Second} }

// electionCandidate is a manager that waits for the test's lease, with a proxy and a group of its own.
type electionCandidate struct {
	*faultyProxy
	mgr  manager.Manager
	g    *Group
	seen chan string
}

// newCandidate makes one. lasts is how long a lease holds, and how long it tries to renew it.
func (a *failureEnv) newCandidate(lasts [2]time.Duration, setup func(seen chan string) SetupFunc) *electionCandidate {
	a.t.Helper()
	c := &electionCandidate{faultyProxy: a.newProxy(a.cfg), seen: make(chan string, 100)}
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
	c.g = a.setUpGroupOf(c.mgr, Served(a.kind), setup(c.seen))
	return c
}

func (a *failureEnv) watchTo(seen chan string) SetupFunc { return watching(a.kind, seen) }

// standby sees the CRD go and come while it waits.
func (a *failureEnv) standby() {
	leader := a.newCandidate(patientLease(), a.watchTo)
	stop := a.startManager(leader.mgr)
	a.installCRD(a.crd)
	a.waitForPhase(leader.g, Running)
	other := a.newCandidate(patientLease(), a.watchTo)
	a.startManager(other.mgr)
	a.waitForCondition(other.g, True, "Served")
	a.createObject("first")
	a.expectReconcile(leader.seen, "first")
	a.uninstallCRD(a.crd)
	a.waitUntilGone(a.crd)
	a.waitForCondition(other.g, False, "NotServed")
	a.installCRD(a.crd)
	a.waitForCondition(other.g, True, "Served")
	a.createObject("second")
	a.expectReconcile(leader.seen, "second")
	if phase := other.g.Status().Phase; phase != Dormant || len(other.seen) > 0 || other.countRequests(a.isInformerRequest) > 0 {
		a.t.Errorf("the standby is %s, with %d reconciles and %d requests to the kind, want nothing", phase, len(other.seen), other.countRequests(a.isInformerRequest))
	}
	if err := other.g.Checker(RequireRunning)(nil); err != nil {
		a.t.Errorf("the standby is not ready: %v", err)
	}
	stop()
	// The reconciler writes to the object, so the old leader may have reconciled it twice before its end; not after it.
	for len(leader.seen) > 0 {
		<-leader.seen
	}
	a.expectReconcile(other.seen, "second")
	a.waitForPhase(other.g, Running)
	if len(leader.seen) > 0 || a.starts.Load() != 3 {
		a.t.Errorf("%d reconciles by the old leader after its end, %d starts, want none and 3", len(leader.seen), a.starts.Load())
	}
}

// lostLeader takes the lease away from a leader whose group waits for its informer.
func (a *failureEnv) lostLeader() {
	a.installCRD(a.crd)
	a.createObject("first")
	leases := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/leases") }
	first := a.newCandidate(hastyLease(), a.syncedSetup)
	first.setFault(a.unansweredList())
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	a.t.Cleanup(cancel)
	go func() { ended <- first.mgr.Start(ctx) }()
	a.waitForPhase(first.g, Starting)

	overlap := make(chan Phase, 1)
	second := a.newCandidate(patientLease(), func(seen chan string) SetupFunc {
		return func(mgr manager.Manager) error {
			overlap <- first.g.Status().Phase
			return a.watchTo(seen)(mgr)
		}
	})
	a.startManager(second.mgr)
	a.waitForCondition(second.g, True, "Served")
	first.setFault(onRequests(leases, answerStatus(500, "InternalError")))
	if err := <-ended; err == nil {
		a.t.Error("the manager has lost its lease and ended without an error")
	}
	a.expectReconcile(second.seen, "first")
	if phase := <-overlap; phase != Dormant {
		a.t.Errorf("the old leader's group was %s when the new one started, want Dormant", phase)
	}
	if len(first.seen) > 0 || a.starts.Load() != 2 {
		a.t.Errorf("%d reconciles by the old leader, %d starts, want none and 2", len(first.seen), a.starts.Load())
	}
}

// unansweredList never answers requests for the objects of the test's kind.
func (a *failureEnv) unansweredList() requestFault {
	return onRequests(a.isInformerRequest, func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
}

// syncedSetup is a setup function that wants its informer before anything starts.
func (a *failureEnv) syncedSetup(seen chan string) SetupFunc {
	return func(mgr manager.Manager) error {
		if _, err := mgr.GetCache().GetInformer(a.t.Context(), newObject(a.kind, "")); err != nil {
			return err
		}
		return watching(a.kind, seen)(mgr)
	}
}
