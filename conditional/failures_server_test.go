// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func failuresOfTheServer() []failureTest {
	return []failureTest{
		{"20 a server that cannot be reached stops nothing", (*failureEnv).unreachable},
		{"20 a token that has expired stops nothing", (*failureEnv).expired},
		{"20 a server that is overloaded stops nothing", (*failureEnv).overloaded},
		{"20 a watch of CRDs that is too old is begun anew", (*failureEnv).tooOld},
		{"21 two servers that disagree stop no running group", (*failureEnv).disagree},
		{"21 two servers that disagree start a group only once", (*failureEnv).disagreeEarly},
	}
}

func (a *failureEnv) unreachable() {
	w := a.newTCPProxy()
	a.testOutage(simulatedOutage{cfg: w.config(), begin: w.disconnect, end: w.reconnect, tries: w.refusedConnections})
}

func (a *failureEnv) expired() {
	stranger, err := asStranger(a.cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	a.testOutage(a.newRefusal(stranger))
}

func (a *failureEnv) overloaded() {
	a.testOutage(a.newRefusal(inTurn(
		answerStatus(429, metav1.StatusReasonTooManyRequests), answerStatus(503, metav1.StatusReasonServiceUnavailable), answerStatus(504, metav1.StatusReasonTimeout),
	)))
}

// newRefusal is an outage in which each request meets the fault.
func (a *failureEnv) newRefusal(f requestFault) simulatedOutage {
	p, before := a.newProxy(a.cfg), 0
	begin := func() { before = p.countRequests(anyRequest); p.setFault(f); p.cutStreams(anyRequest) }
	return simulatedOutage{cfg: p.config(), begin: begin, end: p.clearFault, tries: func() int { return p.countRequests(anyRequest) - before }}
}

// TestAPIServerRestart ends a server of its own, and starts it again.
func TestAPIServerRestart(t *testing.T) {
	s := startAPIServer(t, func(env *envtest.Environment) { env.ControlPlane.GetAPIServer().CertDir = t.TempDir() }) // It stays.
	a, w, server := s.newFailureEnv(t, 0), s.newTCPProxy(), s.env.ControlPlane.APIServer
	a.installCRD(a.crd)
	mgr := a.newManagerFor(w.config())
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForPhase(g, Running)
	w.disconnect() // The server's end waits for open connections.
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	w.reconnect()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	a.expectNoRestart()
	a.uninstallCRD(a.crd)
	a.waitUntilGone(a.crd)
	a.waitForPhase(g, Dormant)
}

// simulatedOutage says how a manager loses the API server, and how often it has tried to reach it since.
type simulatedOutage struct {
	cfg        *rest.Config
	begin, end func()
	tries      func() int
}

// testOutage runs a group of widgets and one of things, which are absent. During an outage nothing stops and nothing
// starts; after it, everything is noticed that happened meanwhile.
func (a *failureEnv) testOutage(o simulatedOutage) {
	thing := schema.GroupVersionKind{Group: a.kind.Group, Version: a.kind.Version, Kind: "Thing"}
	things := make(chan string, 100)
	a.installCRD(a.crd)
	mgr := a.newManagerFor(o.cfg)
	runs := a.setUpGroup(mgr)
	waits, err := Setup(mgr, Served(thing), watching(thing, things), Name(a.name+"-things"))
	if err != nil {
		a.t.Fatal(err)
	}
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

// tooOld refuses to go on with a watch, as after etcd was compacted: everything has to be listed anew.
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
		looks, refusals := p.countRequests(isDiscovery(a.kind.GroupVersion())), refused()
		a.annotateCRD(mark) // A watch that has brought something is gone on with.
		a.eventually("the change was seen", func(context.Context) (bool, error) {
			return p.countRequests(isDiscovery(a.kind.GroupVersion())) > looks, nil
		})
		p.setFault(onRequests(goOn, answerStatus(410, metav1.StatusReasonExpired)))
		p.cutStreams(isWatch(isCRDRequest))
		a.eventually("the watch is refused", func(context.Context) (bool, error) { return refused() > refusals, nil })
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

// laggingDiscovery is the answer of a server that lags behind: two such answers for each other one.
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

// causeLooks changes the CRD again and again, each time until it was looked for.
func (a *failureEnv) causeLooks(p *faultyProxy) {
	looks := isDiscovery(a.kind.GroupVersion())
	for n := range 10 {
		before := p.countRequests(looks)
		a.annotateCRD(fmt.Sprint(n))
		a.eventually("the kind was looked for", func(context.Context) (bool, error) { return p.countRequests(looks) >= before+5, nil })
	}
}
