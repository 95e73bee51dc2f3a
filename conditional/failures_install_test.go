// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func failuresOfInstalling() []row {
	return []row{
		{"2 installed while the manager starts", (*arena).installedWhileStarting},
		{"2 installed after a while", (*arena).installedLater},
		{"8 a kind that another CRD has taken", (*arena).takenKind},
		{"8 a plural that another CRD has taken", (*arena).takenPlural},
		{"20 the storage of the kind is initializing", (*arena).storageInitializing},
	}
}

// installedWhileStarting begins each time with a new manager.
func (a *arena) installedWhileStarting() {
	create := func() {
		if err := a.client().Create(a.t.Context(), a.def.DeepCopy()); err != nil {
			a.t.Error(err)
		}
	}
	for name, install := range map[string]func(start func()){
		"before": func(start func()) { create(); start() },
		"with": func(start func()) {
			var creating sync.WaitGroup
			defer creating.Wait()
			creating.Go(create)
			start()
		},
		"after": func(start func()) { start(); create() },
	} {
		mgr := a.manager(a.cfg)
		g, stop := a.group(mgr), func() {}
		install(func() { stop = a.start(mgr) })
		a.wait(g, Running)
		a.make(name)
		a.expect(a.seen, name)
		stop()
		a.uninstall(a.def)
		a.gone(a.def)
	}
	if starts := a.starts.Load(); starts != 3 {
		a.t.Errorf("%d starts of three managers, want 3", starts)
	}
}

// installedLater lets the watch of CRDs be renewed, as the API server does every few minutes.
func (a *arena) installedLater() {
	p := a.proxy(a.cfg)
	mgr := a.manager(p.config())
	g := a.run(a.group(mgr), mgr)
	a.says(g, False, "NotServed")
	for n := range 3 {
		a.quiet(p, everything, 500*time.Millisecond) // It costs nothing to wait.
		if opened := p.asks(watches(ofCRDs)); opened != n+1 {
			a.t.Errorf("%d watches of CRDs were opened, want %d", opened, n+1)
		}
		p.cut(watches(ofCRDs))
		a.eventually("the CRDs are watched again", func(context.Context) (bool, error) { return p.asks(watches(ofCRDs)) == n+2, nil })
	}
	a.install(a.def)
	a.make("first")
	a.expect(a.seen, "first")
	a.undisturbed()
}

func (a *arena) takenKind() {
	a.taken(func(names *apiextensionsv1.CustomResourceDefinitionNames) { names.ListKind = a.kind.Kind })
}

func (a *arena) takenPlural() {
	a.taken(func(names *apiextensionsv1.CustomResourceDefinitionNames) { names.ShortNames = []string{"widgets"} })
}

// taken installs a CRD that has a name of the arena's one, so that this is never established before the other is gone.
func (a *arena) taken(take func(*apiextensionsv1.CustomResourceDefinitionNames)) {
	other := crdOf(schema.GroupVersionKind{Group: a.kind.Group, Version: "v1", Kind: "Thing"}, "things")
	take(&other.Spec.Names)
	a.install(other)
	p := a.proxy(a.cfg)
	mgr := a.manager(p.config())
	g := a.run(a.group(mgr), mgr)
	if err := a.client().Create(a.t.Context(), a.def.DeepCopy()); err != nil {
		a.t.Fatal(err)
	}
	a.eventually("the names are refused", func(ctx context.Context) (bool, error) {
		return a.has(ctx, apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse)
	})
	a.says(g, False, "NotServed")
	a.quiet(p, everything, 3*time.Second)
	if asked := p.asks(everything); asked > 100 || a.starts.Load() != 0 {
		a.t.Errorf("%d requests and %d starts for a kind that is never established, want at most 100 and none", asked, a.starts.Load())
	}
	a.uninstall(other)
	a.make("first")
	a.expect(a.seen, "first")
	a.undisturbed()
}

// has tells whether the arena's CRD has a condition.
func (a *arena) has(ctx context.Context, kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus) (bool, error) {
	var now apiextensionsv1.CustomResourceDefinition
	if err := a.client().Get(ctx, client.ObjectKeyFromObject(a.def), &now); err != nil {
		return false, err
	}
	for _, c := range now.Status.Conditions {
		if c.Type == kind {
			return c.Status == status, nil
		}
	}
	return false, nil
}

// storageInitializing answers as an API server that has just been told of a CRD.
func (a *arena) storageInitializing() {
	p := a.proxy(a.cfg)
	mgr := a.manager(p.config())
	g := a.run(a.group(mgr), mgr)
	a.says(g, False, "NotServed")
	kind := objects(a.kind.GroupVersion(), "widgets")
	p.ail(on(kind, says(429, "TooManyRequests")))
	a.install(a.def)
	a.says(g, False, "StorageInitializing")
	a.eventually("the storage was asked for several times", func(context.Context) (bool, error) { return p.asks(kind) > 5, nil })
	if a.starts.Load() != 0 {
		a.t.Error("the group has started before its kind could be watched")
	}
	p.heal()
	a.make("first")
	a.expect(a.seen, "first")
	a.undisturbed()
}
