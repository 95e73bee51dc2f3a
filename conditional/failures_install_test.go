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

func failuresOfInstalling() []failureTest {
	return []failureTest{
		{"2 a group starts when its CRD is installed before, with or after the manager", (*failureEnv).installedWhileStarting},
		{"2 waiting for a CRD costs no requests until it is installed", (*failureEnv).installedLater},
		{"8 a CRD whose kind another CRD has taken starts nothing", (*failureEnv).takenKind},
		{"8 a CRD whose plural another CRD has taken starts nothing", (*failureEnv).takenPlural},
		{"20 a group waits for storage that is initializing", (*failureEnv).storageInitializing},
	}
}

// installedWhileStarting begins each time with a new manager.
func (a *failureEnv) installedWhileStarting() {
	create := func() {
		if err := a.newClient().Create(a.t.Context(), a.crd.DeepCopy()); err != nil {
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
		mgr := a.newManagerFor(a.cfg)
		g, stop := a.setUpGroup(mgr), func() {}
		install(func() { stop = a.startManager(mgr) })
		a.waitForPhase(g, Running)
		a.createObject(name)
		a.expectReconcile(a.seen, name)
		stop()
		a.uninstallCRD(a.crd)
		a.waitUntilGone(a.crd)
	}
	if starts := a.starts.Load(); starts != 3 {
		a.t.Errorf("%d starts of three managers, want 3", starts)
	}
}

// installedLater lets the watch of CRDs be renewed, as the API server does every few minutes.
func (a *failureEnv) installedLater() {
	p := a.newProxy(a.cfg)
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForCondition(g, False, "NotServed")
	for n := range 3 {
		a.waitForQuiet(p, anyRequest, 500*time.Millisecond) // It costs nothing to wait.
		if opened := p.countRequests(isWatch(isCRDRequest)); opened != n+1 {
			a.t.Errorf("%d watches of CRDs were opened, want %d", opened, n+1)
		}
		p.cutStreams(isWatch(isCRDRequest))
		a.eventually("the CRDs are watched again", func(context.Context) (bool, error) { return p.countRequests(isWatch(isCRDRequest)) == n+2, nil })
	}
	a.installCRD(a.crd)
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	a.expectNoRestart()
}

func (a *failureEnv) takenKind() {
	a.testTakenName(func(names *apiextensionsv1.CustomResourceDefinitionNames) { names.ListKind = a.kind.Kind })
}

func (a *failureEnv) takenPlural() {
	a.testTakenName(func(names *apiextensionsv1.CustomResourceDefinitionNames) { names.ShortNames = []string{"widgets"} })
}

// testTakenName installs a CRD that has a name of the test's own, so that this one is never established before the other is gone.
func (a *failureEnv) testTakenName(take func(*apiextensionsv1.CustomResourceDefinitionNames)) {
	other := newCRD(schema.GroupVersionKind{Group: a.kind.Group, Version: "v1", Kind: "Thing"}, "things")
	take(&other.Spec.Names)
	a.installCRD(other)
	p := a.newProxy(a.cfg)
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	if err := a.newClient().Create(a.t.Context(), a.crd.DeepCopy()); err != nil {
		a.t.Fatal(err)
	}
	a.eventually("the names are refused", func(ctx context.Context) (bool, error) {
		return a.hasCondition(ctx, apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse)
	})
	a.waitForCondition(g, False, "NotServed")
	a.waitForQuiet(p, anyRequest, 3*time.Second)
	if asked := p.countRequests(anyRequest); asked > 100 || a.starts.Load() != 0 {
		a.t.Errorf("%d requests and %d starts for a kind that is never established, want at most 100 and none", asked, a.starts.Load())
	}
	a.uninstallCRD(other)
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	a.expectNoRestart()
}

// hasCondition reports whether the test's CRD has a condition.
func (a *failureEnv) hasCondition(ctx context.Context, kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus) (bool, error) {
	var now apiextensionsv1.CustomResourceDefinition
	if err := a.newClient().Get(ctx, client.ObjectKeyFromObject(a.crd), &now); err != nil {
		return false, err
	}
	for _, c := range now.Status.Conditions {
		if c.Type == kind {
			return c.Status == status, nil
		}
	}
	return false, nil
}

// storageInitializing answers as an API server that has just received a CRD.
func (a *failureEnv) storageInitializing() {
	p := a.newProxy(a.cfg)
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForCondition(g, False, "NotServed")
	kind := isObjectRequest(a.kind.GroupVersion(), "widgets")
	p.setFault(onRequests(kind, answerStatus(429, "TooManyRequests")))
	a.installCRD(a.crd)
	a.waitForCondition(g, False, "StorageInitializing")
	a.eventually("the storage was asked for several times", func(context.Context) (bool, error) { return p.countRequests(kind) > 5, nil })
	if a.starts.Load() != 0 {
		a.t.Error("the group has started before its kind could be watched")
	}
	p.clearFault()
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	a.expectNoRestart()
}
