// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func failuresOfTheServer() []failureTest {
	return []failureTest{
		{"20 a group keeps running while the server is unreachable", (*failureEnv).unreachable},
		{"20 a group keeps running while the token is expired", (*failureEnv).expired},
		{"20 a group keeps running while the server is overloaded", (*failureEnv).overloaded},
		{"20 a watch of CRDs with an expired resource version is restarted", (*failureEnv).tooOld},
		{"21 a running group keeps running while two servers disagree", (*failureEnv).disagree},
		{"21 a group starts only once while two servers disagree", (*failureEnv).disagreeEarly},
	}
}

func (a *failureEnv) unreachable() {
	w := a.newTCPProxy()
	a.testOutage(simulatedOutage{cfg: w.config(), begin: w.disconnect, end: w.reconnect, tries: w.refusedConnections})
}

func (a *failureEnv) expired() {
	stranger, err := asStranger(a.cfg)
	testenv.Must(a.t, err)
	a.testOutage(a.newRefusal(stranger))
}

func (a *failureEnv) overloaded() {
	a.testOutage(a.newRefusal(inTurn(
		answerStatus(429, metav1.StatusReasonTooManyRequests), answerStatus(503, metav1.StatusReasonServiceUnavailable), answerStatus(504, metav1.StatusReasonTimeout),
	)))
}

// newRefusal returns an outage in which the fault responds to every request.
func (a *failureEnv) newRefusal(f requestFault) simulatedOutage {
	p, before := a.newProxy(a.cfg), 0
	begin := func() { before = p.countRequests(anyRequest); p.setFault(f); p.cutStreams(anyRequest) }
	return simulatedOutage{cfg: p.config(), begin: begin, end: p.clearFault, tries: func() int { return p.countRequests(anyRequest) - before }}
}

// TestAPIServerRestart stops and restarts an API server of its own.
func TestAPIServerRestart(t *testing.T) {
	s := startAPIServer(t, func(env *envtest.Environment) { env.ControlPlane.GetAPIServer().CertDir = t.TempDir() }) // outlives a restart
	a, w, server := s.newFailureEnv(t, 0), s.newTCPProxy(), s.env.ControlPlane.APIServer
	a.installCRD(a.crd)
	mgr := a.newManagerFor(w.config())
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForPhase(g, Running)
	w.disconnect() // The server would wait for open connections when it stops.
	testenv.Must(t, server.Stop())
	w.reconnect()
	testenv.Must(t, server.Start())
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	a.expectNoRestart()
	a.uninstallCRD(a.crd)
	a.waitUntilGone(a.crd)
	a.waitForPhase(g, Dormant)
}

// simulatedOutage describes how a manager loses its connection to the API server, and how to count its attempts to
// reconnect.
type simulatedOutage struct {
	cfg        *rest.Config
	begin, end func()
	tries      func() int
}

// testOutage runs a group for widgets and one for things, a kind that is absent at first. During an outage no group
// stops or starts. After the outage, the groups react to every change that happened during it.
func (a *failureEnv) testOutage(o simulatedOutage) {
	thing := schema.GroupVersionKind{Group: a.kind.Group, Version: a.kind.Version, Kind: "Thing"}
	things := make(chan string, 100)
	a.installCRD(a.crd)
	mgr := a.newManagerFor(o.cfg)
	runs := a.setUpGroup(mgr)
	waits := mustSetUp(a.t, mgr, Served(thing), watching(thing, things), Name(a.name+"-things"))
	a.startManager(mgr)
	a.waitForPhase(runs, Running)
	a.waitForCondition(waits, False, "NotServed")

	o.begin()
	a.installCRD(newCRD(thing, "things"))
	a.createObjectOf(thing, "first")
	a.createObject("second")
	a.eventually("the manager has tried several times", func(context.Context) (bool, error) { return o.tries() >= 5, nil })
	a.expectNoRestart()
	if len(things)+len(a.seen) > 0 || waits.Status().Phase != Dormant {
		a.t.Errorf("%d and %d reconciles in the outage, the second group is %s", len(a.seen), len(things), waits.Status().Phase)
	}
	o.end()
	a.expectReconcile(things, "first")
	a.expectReconcile(a.seen, "second")
	a.expectNoRestart()

	o.begin()
	a.uninstallCRD(a.crd)
	a.waitUntilGone(a.crd)
	a.expectNoRestart()
	o.end()
	a.waitForPhase(runs, Dormant)
	a.waitForPhase(waits, Running)
}

// tooOld rejects the resumption of a watch, as after a compaction of etcd, so all objects have to be listed again.
func (a *failureEnv) tooOld() {
	p := a.newProxy(a.cfg)
	a.installCRD(a.crd)
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForPhase(g, Running)
	goOn := func(r *http.Request) bool {
		q := r.URL.Query()
		return isWatch(isCRDRequest)(r) && q.Get("resourceVersion") != "" && q.Get("sendInitialEvents") == ""
	}
	refused := func() int { return p.countRequests(goOn) }
	refuse := func(mark string) {
		looks, refusals, marks := p.countRequests(isDiscovery(a.kind.GroupVersion())), refused(), 0
		p.setFault(onRequests(goOn, answerStatus(410, metav1.StatusReasonExpired)))
		a.annotateCRD(mark)
		a.eventually("the watch is refused", func(context.Context) (bool, error) {
			// A watch is resumed only after it has delivered an event. A query may have another cause than the event,
			// so several cuts may be necessary.
			if now := p.countRequests(isDiscovery(a.kind.GroupVersion())); refused() == refusals && now > looks {
				looks, marks = now, marks+1
				p.cutStreams(isWatch(isCRDRequest))
				a.annotateCRD(fmt.Sprint(mark, marks))
			}
			return refused() > refusals, nil
		})
	}
	refuse("first")
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	a.expectNoRestart()
	refuse("second")
	a.uninstallCRD(a.crd)
	a.waitUntilGone(a.crd)
	a.waitForPhase(g, Dormant)
	p.clearFault()
	a.installCRD(a.crd)
	a.createObject("second")
	a.expectReconcile(a.seen, "second")
}

// laggingDiscovery simulates a server that lags behind: it returns two outdated responses for each current one.
func (a *failureEnv) laggingDiscovery() requestFault {
	lags := answerStatus(404, metav1.StatusReasonNotFound)
	return onRequests(isDiscovery(a.kind.GroupVersion()), inTurn(lags, lags, answerNormally))
}

func (a *failureEnv) disagree() {
	p := a.newProxy(a.cfg)
	a.installCRD(a.crd)
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForPhase(g, Running)
	p.setFault(a.laggingDiscovery())
	a.causeLooks(p)
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	a.expectNoRestart()
}

func (a *failureEnv) disagreeEarly() {
	p := a.newProxy(a.cfg)
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForCondition(g, False, "NotServed")
	p.setFault(a.laggingDiscovery())
	a.installCRD(a.crd)
	a.waitForPhase(g, Running)
	a.causeLooks(p)
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	a.expectNoRestart()
}

// causeLooks changes the CRD ten times. After each change it waits until discovery was queried repeatedly.
func (a *failureEnv) causeLooks(p *faultyProxy) {
	looks := isDiscovery(a.kind.GroupVersion())
	for n := range 10 {
		before := p.countRequests(looks)
		a.annotateCRD(fmt.Sprint(n))
		a.eventually("the kind was looked for", func(context.Context) (bool, error) { return p.countRequests(looks) >= before+5, nil })
	}
}

func failuresOfLeading() []failureTest {
	return []failureTest{
		{"26 a standby's group starts only after the leader's group has stopped", (*failureEnv).standby},
		{"26 a starting group stops when its manager loses the lease", (*failureEnv).lostLeader},
	}
}

// With patientLease, a manager keeps its lease on a machine of any speed, and releases the lease when it stops. With
// hastyLease, a manager loses its lease soon after the API server rejects its writes, and then the lease expires.
func patientLease() [2]time.Duration { return [2]time.Duration{time.Hour, patience} }
func hastyLease() [2]time.Duration   { return [2]time.Duration{12 * time.Second, 2 * time.Second} }

// electionCandidate is a manager that waits for the test's lease. It has its own proxy and group.
type electionCandidate struct {
	*faultyProxy
	mgr  manager.Manager
	g    *Group
	seen chan string
}

// newCandidate returns a candidate. lasts holds the duration of the lease and the deadline for renewing it.
func (a *failureEnv) newCandidate(lasts [2]time.Duration, setup func(seen chan string) SetupFunc) *electionCandidate {
	a.t.Helper()
	c := &electionCandidate{faultyProxy: a.newProxy(a.cfg), seen: make(chan string, 100)}
	c.mgr = a.newManagerFor(c.config(), electing(a.kind.Group), func(o *ctrl.Options) {
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &lasts[0], &lasts[1], new(500*time.Millisecond)
	})
	c.g = a.setUpGroupOf(c.mgr, Served(a.kind), setup(c.seen))
	return c
}

func (a *failureEnv) watchTo(seen chan string) SetupFunc { return watching(a.kind, seen) }

// electing returns options for a manager that waits for a lease.
func electing(id string) func(*ctrl.Options) {
	return func(o *ctrl.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace, o.LeaderElectionReleaseOnCancel = true, id, "default", true
	}
}

// standby makes a second manager wait for the lease while the CRD is deleted and reinstalled.
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
	// The reconciler writes to the object, so the old leader may have reconciled the object twice before its stop.
	// After its stop, the old leader reconciles no object.
	for len(leader.seen) > 0 {
		<-leader.seen
	}
	a.expectReconcile(other.seen, "second")
	a.waitForPhase(other.g, Running)
	if len(leader.seen) > 0 || a.starts.Load() != 3 {
		a.t.Errorf("%d reconciles by the old leader after its end, %d starts, want none and 3", len(leader.seen), a.starts.Load())
	}
}

// lostLeader takes the lease from a leader while the leader's group waits for its informer.
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

// unansweredList never responds to requests for the objects of the test's kind.
func (a *failureEnv) unansweredList() requestFault {
	return onRequests(a.isInformerRequest, func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
}

// syncedSetup returns a setup function that requests the kind's informer before the controller starts.
func (a *failureEnv) syncedSetup(seen chan string) SetupFunc {
	return func(mgr manager.Manager) error {
		if _, err := mgr.GetCache().GetInformer(a.t.Context(), newObject(a.kind, "")); err != nil {
			return err
		}
		return watching(a.kind, seen)(mgr)
	}
}
