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

func failuresOfTheServer() []row {
	return []row{
		{"20 the server cannot be reached", (*arena).unreachable},
		{"20 the token has expired", (*arena).expired},
		{"20 the server is overloaded", (*arena).overloaded},
		{"20 the watch of CRDs is too old", (*arena).tooOld},
		{"21 two servers disagree while a group runs", (*arena).disagree},
		{"21 two servers disagree while a kind comes", (*arena).disagreeEarly},
	}
}

func (a *arena) unreachable() {
	w := a.wire()
	a.outage(outage{cfg: w.config(), begin: w.tear, end: w.mend, tries: w.tries})
}

func (a *arena) expired() {
	stranger, err := asStranger(a.cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	a.outage(a.refusal(stranger))
}

func (a *arena) overloaded() {
	a.outage(a.refusal(inTurn(
		says(429, metav1.StatusReasonTooManyRequests), says(503, metav1.StatusReasonServiceUnavailable), says(504, metav1.StatusReasonTimeout),
	)))
}

// refusal is an outage in which each request meets the fault.
func (a *arena) refusal(f fault) outage {
	p, before := a.proxy(a.cfg), 0
	begin := func() { before = p.asks(everything); p.ail(f); p.cut(everything) }
	return outage{cfg: p.config(), begin: begin, end: p.heal, tries: func() int { return p.asks(everything) - before }}
}

// TestAPIServerRestart ends a server of its own, and starts it again.
func TestAPIServerRestart(t *testing.T) {
	s := startAPIServer(t, func(env *envtest.Environment) { env.ControlPlane.GetAPIServer().CertDir = t.TempDir() }) // It stays.
	a, w, server := s.arena(t, 0), s.wire(), s.env.ControlPlane.APIServer
	a.install(a.def)
	mgr := a.manager(w.config())
	g := a.run(a.group(mgr), mgr)
	a.wait(g, Running)
	w.tear() // The server waits for whoever holds a connection.
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	w.mend()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	a.make("first")
	a.expect(a.seen, "first")
	a.undisturbed()
	a.uninstall(a.def)
	a.gone(a.def)
	a.wait(g, Dormant)
}

// outage says how a manager loses the API server, and how often it has tried to reach it since.
type outage struct {
	cfg        *rest.Config
	begin, end func()
	tries      func() int
}

// outage runs a group of widgets and one of things, which are absent. During an outage nothing stops and nothing
// starts; after it, everything is noticed that happened meanwhile.
func (a *arena) outage(o outage) {
	thing := schema.GroupVersionKind{Group: a.kind.Group, Version: a.kind.Version, Kind: "Thing"}
	things := make(chan string, 100)
	a.install(a.def)
	mgr := a.manager(o.cfg)
	runs := a.group(mgr)
	waits, err := Setup(mgr, Served(thing), watching(thing, things), Name(a.name+"-things"))
	if err != nil {
		a.t.Fatal(err)
	}
	a.start(mgr)
	a.wait(runs, Running)
	a.says(waits, False, "NotServed")

	o.begin()
	a.install(crdOf(thing, "things"))
	a.makeOf(thing, "first")
	a.make("second")
	a.eventually("the manager has tried several times", func(context.Context) (bool, error) { return o.tries() >= 5, nil })
	a.undisturbed()
	if len(things)+len(a.seen) > 0 || waits.Status().Phase != Dormant {
		a.t.Errorf("%d and %d reconciles in the outage, the second group is %s", len(a.seen), len(things), waits.Status().Phase)
	}
	o.end()
	a.expect(things, "first")
	a.expect(a.seen, "second")
	a.undisturbed()

	o.begin()
	a.uninstall(a.def)
	a.gone(a.def)
	a.undisturbed()
	o.end()
	a.wait(runs, Dormant)
	a.wait(waits, Running)
}

// tooOld refuses to go on with a watch, as after etcd was compacted: everything has to be listed anew.
func (a *arena) tooOld() {
	p := a.proxy(a.cfg)
	a.install(a.def)
	mgr := a.manager(p.config())
	g := a.run(a.group(mgr), mgr)
	a.wait(g, Running)
	goOn := func(r *http.Request) bool {
		q := r.URL.Query()
		return watches(ofCRDs)(r) && q.Get("resourceVersion") != "" && q.Get("sendInitialEvents") == ""
	}
	refused := func() int { return p.asks(goOn) }
	refuse := func(mark string) {
		looks, refusals := p.asks(discovery(a.kind.GroupVersion())), refused()
		a.touch(mark) // A watch that has brought something is gone on with.
		a.eventually("the change was seen", func(context.Context) (bool, error) {
			return p.asks(discovery(a.kind.GroupVersion())) > looks, nil
		})
		p.ail(on(goOn, says(410, metav1.StatusReasonExpired)))
		p.cut(watches(ofCRDs))
		a.eventually("the watch is refused", func(context.Context) (bool, error) { return refused() > refusals, nil })
	}
	refuse("first")
	a.make("first")
	a.expect(a.seen, "first")
	a.undisturbed()
	refuse("second")
	a.uninstall(a.def)
	a.gone(a.def)
	a.wait(g, Dormant)
	p.heal()
	a.install(a.def)
	a.make("second")
	a.expect(a.seen, "second")
}

// notServed is the answer of a server that lags behind: two such answers for each other one.
func (a *arena) notServed() fault {
	lags := says(404, metav1.StatusReasonNotFound)
	return on(discovery(a.kind.GroupVersion()), inTurn(lags, lags, healthy))
}

func (a *arena) disagree() {
	p := a.proxy(a.cfg)
	a.install(a.def)
	mgr := a.manager(p.config())
	g := a.run(a.group(mgr), mgr)
	a.wait(g, Running)
	p.ail(a.notServed())
	a.lookOften(p)
	a.make("first")
	a.expect(a.seen, "first")
	a.undisturbed()
}

func (a *arena) disagreeEarly() {
	p := a.proxy(a.cfg)
	mgr := a.manager(p.config())
	g := a.run(a.group(mgr), mgr)
	a.says(g, False, "NotServed")
	p.ail(a.notServed())
	a.install(a.def)
	a.wait(g, Running)
	a.lookOften(p)
	a.make("first")
	a.expect(a.seen, "first")
	a.undisturbed()
}

// lookOften changes the CRD again and again, each time until it was looked for.
func (a *arena) lookOften(p *proxy) {
	looks := discovery(a.kind.GroupVersion())
	for n := range 10 {
		before := p.asks(looks)
		a.touch(fmt.Sprint(n))
		a.eventually("the kind was looked for", func(context.Context) (bool, error) { return p.asks(looks) >= before+5, nil })
	}
}
