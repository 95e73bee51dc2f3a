// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func failuresOfReplacing() []row {
	return []row{
		{"4 the schema changes", (*arena).otherSchema},
		{"4 another kind of the group comes and goes", (*arena).otherKind},
		{"4 another version comes back", (*arena).otherVersion},
		{"5 replaced while the watch is late", (*arena).replacedLate},
		{"5 replaced while there is no watch", (*arena).replacedUnseen},
		{"6 a version is not served for a while", (*arena).unserved},
		{"18 a CRD that flaps", (*arena).flapping},
	}
}

// narrow is a schema that keeps nothing but a message, and demands it.
func narrow(def *apiextensionsv1.CustomResourceDefinition) {
	def.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"message": {Type: "string"}}},
		},
	}
}

// otherSchema changes it in place, which concerns nobody, and by a new CRD.
func (a *arena) otherSchema() {
	a.install(a.def)
	mgr := a.manager(a.cfg)
	g := a.run(a.group(mgr), mgr)
	a.make("wide")
	a.expect(a.seen, "wide")
	a.changed(narrow)
	a.make("narrow")
	a.expect(a.seen, "narrow")
	a.undisturbed()

	a.uninstall(a.def)
	a.wait(g, Dormant)
	a.gone(a.def)
	narrow(a.def)
	a.install(a.def)
	a.make("again")
	a.expect(a.seen, "again")
}

// otherKind shares group and version with the arena's kind.
func (a *arena) otherKind() {
	thing := schema.GroupVersionKind{Group: a.kind.Group, Version: a.kind.Version, Kind: "Thing"}
	other := crdOf(thing, "things")
	mgr := a.manager(a.cfg)
	g := a.run(a.group(mgr), mgr)
	a.install(other) // Now the group version is served, the kind is not.
	a.makeOf(thing, "thing")
	a.says(g, False, "NotServed")
	a.install(a.def)
	a.make("first")
	a.expect(a.seen, "first")
	a.uninstall(other)
	a.gone(other)
	a.install(other)
	a.make("second")
	a.expect(a.seen, "second")
	a.undisturbed()

	a.uninstall(a.def)
	a.wait(g, Dormant)
	a.gone(a.def)
	a.install(a.def)
	a.make("third")
	a.expect(a.seen, "third")
}

func (a *arena) otherVersion() {
	a.install(a.def)
	mgr := a.manager(a.cfg)
	g := a.run(a.group(mgr), mgr)
	a.wait(g, Running)
	a.uninstall(a.def)
	a.gone(a.def)
	a.wait(g, Dormant)
	a.def.Spec.Versions[0].Name = "v2"
	a.install(a.def)
	a.makeOf(a.kind.GroupKind().WithVersion("v2"), "first")
	a.says(g, False, "NotServed")
	if starts := a.starts.Load(); starts != 1 {
		a.t.Errorf("%d starts, want 1: the version of the group is not served", starts)
	}
	a.serve(a.def, "v1", true)
	a.expect(a.seen, "first")
}

// replacedLate lets the manager hear that a CRD went and came when both is over.
func (a *arena) replacedLate() {
	p := a.proxy(a.cfg)
	mgr := a.manager(p.config())
	a.install(a.def)
	g := a.run(a.group(mgr), mgr)
	a.wait(g, Running)
	p.hold(watches(ofCRDs))
	a.replace()
	a.undisturbed()
	p.release()
	a.restarted(g)
}

// replacedUnseen lets the informer of CRDs find a CRD of the same name with another UID.
func (a *arena) replacedUnseen() {
	p := a.proxy(a.cfg)
	mgr := a.manager(p.config())
	a.install(a.def)
	g := a.run(a.group(mgr), mgr)
	a.wait(g, Running)
	p.ail(on(ofCRDs, says(503, "ServiceUnavailable")))
	p.cut(ofCRDs)
	a.replace()
	p.heal()
	a.restarted(g)
}

func (a *arena) replace() {
	a.t.Helper()
	a.make("old")
	a.expect(a.seen, "old")
	a.uninstall(a.def)
	a.gone(a.def)
	a.install(a.def)
}

func (a *arena) restarted(g *Group) {
	a.t.Helper()
	a.eventually("the group has restarted", func(context.Context) (bool, error) {
		return a.starts.Load() == 2 && g.Status().Phase == Running, nil
	})
	a.make("new")
	a.expect(a.seen, "new")
	if starts := a.starts.Load(); starts != 2 {
		a.t.Errorf("%d starts, want 2", starts)
	}
}

// unserved keeps what a start has handed out, and reads with it while the objects exist but are not served.
func (a *arena) unserved() {
	v2 := a.kind.GroupKind().WithVersion("v2")
	a.install(a.def)
	a.serve(a.def, "v2", true)
	reader := make(chan cache.Cache, 10)
	setup := func(mgr manager.Manager) error {
		reader <- mgr.GetCache()
		return watching(a.kind, a.seen)(mgr)
	}
	mgr := a.manager(a.cfg)
	g := a.run(a.groupOf(mgr, Served(a.kind), setup), mgr)
	a.make("first")
	a.expect(a.seen, "first")
	for _, name := range []string{"second", "third"} {
		scoped := <-reader
		if err := scoped.Get(a.t.Context(), client.ObjectKey{Namespace: "default", Name: "first"}, objectOf(a.kind, "")); err != nil {
			a.t.Errorf("read while the version is served: %v", err)
		}
		a.serve(a.def, "v1", false)
		a.wait(g, Dormant)
		if err := scoped.Get(a.t.Context(), client.ObjectKey{Namespace: "default", Name: "first"}, objectOf(a.kind, "")); !errors.Is(err, ErrScopeClosed) {
			a.t.Errorf("read while it is not says %v, want ErrScopeClosed rather than a stale object", err)
		}
		for len(a.seen) > 0 {
			<-a.seen
		}
		a.makeOf(v2, name)
		if len(a.seen) > 0 {
			a.t.Errorf("%s was reconciled while its version is not served", <-a.seen)
		}
		a.serve(a.def, "v1", true)
		a.wait(g, Running)
		a.expect(a.seen, name)
	}
	if starts := a.starts.Load(); starts != 3 {
		a.t.Errorf("%d starts, want 3", starts)
	}
}

// flapping installs and deletes a CRD as fast as the server does it, for some seconds.
func (a *arena) flapping() {
	const flaps = 30
	mgr := a.manager(a.cfg)
	g := a.run(a.group(mgr), mgr)
	for range flaps {
		if err := a.client().Create(a.t.Context(), a.def.DeepCopy()); err != nil {
			a.t.Fatal(err)
		}
		a.uninstall(a.def)
		a.gone(a.def)
	}
	a.install(a.def)
	a.make("first")
	a.expect(a.seen, "first")
	a.wait(g, Running)
	starts, stops := a.moves(Starting), a.moves(Dormant)
	if starts > flaps+1 || starts != stops+1 || a.moves(Stuck) != 0 {
		a.t.Errorf("%d starts and %d ends of %d CRDs, want one start more than ends", starts, stops, flaps+1)
	}
	a.t.Logf("%d starts of %d CRDs", starts, flaps+1)
}
