// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func failuresOfReplacing() []failureTest {
	return []failureTest{
		{"4 a group restarts for a new CRD but not for a new schema", (*failureEnv).otherSchema},
		{"4 a group does not restart for another kind of the same API group", (*failureEnv).otherKind},
		{"4 a group does not start for a CRD that is recreated with another version", (*failureEnv).otherVersion},
		{"5 a group restarts once for a CRD that is replaced while the watch is delayed", (*failureEnv).replacedLate},
		{"5 a group restarts once for a CRD that is replaced while there is no watch", (*failureEnv).replacedUnseen},
		{"6 a group stops while its version is not served", (*failureEnv).unserved},
		{"18 a group runs after its CRD has flapped", (*failureEnv).flapping},
	}
}

// narrow changes the schema so that it preserves only the field message of the spec.
func narrow(def *apiextensionsv1.CustomResourceDefinition) {
	def.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"message": {Type: "string"}}},
		},
	}
}

// otherSchema changes the schema, first with an update of the CRD, which does not restart the group, and then with a
// new CRD.
func (a *failureEnv) otherSchema() {
	a.installCRD(a.crd)
	mgr := a.newManagerFor(a.cfg)
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.createObject("wide")
	a.expectReconcile(a.seen, "wide")
	a.updateCRD(a.crd, narrow)
	a.createObject("narrow")
	a.expectReconcile(a.seen, "narrow")
	a.expectNoRestart()

	a.uninstallCRD(a.crd)
	a.waitForPhase(g, Dormant)
	a.waitUntilGone(a.crd)
	narrow(a.crd)
	a.installCRD(a.crd)
	a.createObject("again")
	a.expectReconcile(a.seen, "again")
}

// otherKind installs a kind with the same group and version as the test's kind.
func (a *failureEnv) otherKind() {
	thing := schema.GroupVersionKind{Group: a.kind.Group, Version: a.kind.Version, Kind: "Thing"}
	other := newCRD(thing, "things")
	mgr := a.newManagerFor(a.cfg)
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.installCRD(other) // The group version is now served, but the test's kind is not.
	a.createObjectOf(thing, "thing")
	a.waitForCondition(g, False, "NotServed")
	a.installCRD(a.crd)
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	a.uninstallCRD(other)
	a.waitUntilGone(other)
	a.installCRD(other)
	a.createObject("second")
	a.expectReconcile(a.seen, "second")
	a.expectNoRestart()

	a.uninstallCRD(a.crd)
	a.waitForPhase(g, Dormant)
	a.waitUntilGone(a.crd)
	a.installCRD(a.crd)
	a.createObject("third")
	a.expectReconcile(a.seen, "third")
}

func (a *failureEnv) otherVersion() {
	a.installCRD(a.crd)
	mgr := a.newManagerFor(a.cfg)
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForPhase(g, Running)
	a.uninstallCRD(a.crd)
	a.waitUntilGone(a.crd)
	a.waitForPhase(g, Dormant)
	a.crd.Spec.Versions[0].Name = "v2"
	a.installCRD(a.crd)
	a.createObjectOf(a.kind.GroupKind().WithVersion("v2"), "first")
	a.waitForCondition(g, False, "NotServed")
	if starts := a.starts.Load(); starts != 1 {
		a.t.Errorf("%d starts, want 1: the version of the group is not served", starts)
	}
	a.setServed(a.crd, "v1", true)
	a.expectReconcile(a.seen, "first")
}

// replacedLate deletes and recreates a CRD before the detector receives the event of either change.
func (a *failureEnv) replacedLate() {
	p := a.newProxy(a.cfg)
	mgr := a.newManagerFor(p.config())
	a.installCRD(a.crd)
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForPhase(g, Running)
	p.holdStreams(isWatch(isCRDRequest))
	a.replaceCRD()
	a.expectNoRestart()
	p.releaseStreams()
	a.expectOneRestart(g)
}

// replacedUnseen replaces a CRD while no watch of CRDs is open. The next list contains a CRD with the same name and
// another UID.
func (a *failureEnv) replacedUnseen() {
	p := a.newProxy(a.cfg)
	mgr := a.newManagerFor(p.config())
	a.installCRD(a.crd)
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForPhase(g, Running)
	p.setFault(onRequests(isCRDRequest, answerStatus(503, "ServiceUnavailable")))
	p.cutStreams(isCRDRequest)
	a.replaceCRD()
	p.clearFault()
	a.expectOneRestart(g)
}

func (a *failureEnv) replaceCRD() {
	a.t.Helper()
	a.createObject("old")
	a.expectReconcile(a.seen, "old")
	a.uninstallCRD(a.crd)
	a.waitUntilGone(a.crd)
	a.installCRD(a.crd)
}

func (a *failureEnv) expectOneRestart(g *Group) {
	a.t.Helper()
	a.eventually("the group has restarted", func(context.Context) (bool, error) {
		return a.starts.Load() == 2 && g.Status().Phase == Running, nil
	})
	a.createObject("new")
	a.expectReconcile(a.seen, "new")
	if starts := a.starts.Load(); starts != 2 {
		a.t.Errorf("%d starts, want 2", starts)
	}
}

// unserved keeps the cache of each start, and reads with it while the objects exist but their version is not served.
func (a *failureEnv) unserved() {
	v2 := a.kind.GroupKind().WithVersion("v2")
	a.installCRD(a.crd)
	a.setServed(a.crd, "v2", true)
	reader := make(chan cache.Cache, 10)
	setup := func(mgr manager.Manager) error {
		reader <- mgr.GetCache()
		return watching(a.kind, a.seen)(mgr)
	}
	mgr := a.newManagerFor(a.cfg)
	g := a.startGroup(a.setUpGroupOf(mgr, Served(a.kind), setup), mgr)
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	for _, name := range []string{"second", "third"} {
		scoped := <-reader
		if err := scoped.Get(a.t.Context(), client.ObjectKey{Namespace: "default", Name: "first"}, newObject(a.kind, "")); err != nil {
			a.t.Errorf("read while the version is served: %v", err)
		}
		a.setServed(a.crd, "v1", false)
		a.waitForPhase(g, Dormant)
		if err := scoped.Get(a.t.Context(), client.ObjectKey{Namespace: "default", Name: "first"}, newObject(a.kind, "")); !errors.Is(err, ErrScopeClosed) {
			a.t.Errorf("read while it is not says %v, want ErrScopeClosed rather than a stale object", err)
		}
		for len(a.seen) > 0 {
			<-a.seen
		}
		a.createObjectOf(v2, name)
		if len(a.seen) > 0 {
			a.t.Errorf("%s was reconciled while its version is not served", <-a.seen)
		}
		a.setServed(a.crd, "v1", true)
		a.waitForPhase(g, Running)
		a.expectReconcile(a.seen, name)
	}
	if starts := a.starts.Load(); starts != 3 {
		a.t.Errorf("%d starts, want 3", starts)
	}
}

// flapping installs and deletes a CRD for several seconds, as fast as the server can.
func (a *failureEnv) flapping() {
	const flaps = 30
	mgr := a.newManagerFor(a.cfg)
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	for range flaps {
		testenv.Must(a.t, a.newClient().Create(a.t.Context(), a.crd.DeepCopy()))
		a.uninstallCRD(a.crd)
		a.waitUntilGone(a.crd)
	}
	a.installCRD(a.crd)
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	a.waitForPhase(g, Running)
	starts, stops := a.countEntries(Starting), a.countEntries(Dormant)
	if starts > flaps+1 || starts != stops+1 || a.countEntries(Stuck) != 0 {
		a.t.Errorf("%d starts and %d ends of %d CRDs, want one start more than ends", starts, stops, flaps+1)
	}
	a.t.Logf("%d starts of %d CRDs", starts, flaps+1)
}

func failuresOfInstalling() []failureTest {
	return []failureTest{
		{"2 a group starts when its CRD is installed before, with or after the manager", (*failureEnv).installedWhileStarting},
		{"2 waiting for a CRD costs no requests until it is installed", (*failureEnv).installedLater},
		{"8 a group does not start for a CRD whose kind is taken by another CRD", (*failureEnv).takenKind},
		{"8 a group does not start for a CRD whose plural is taken by another CRD", (*failureEnv).takenPlural},
		{"20 a group waits while the storage is initializing", (*failureEnv).storageInitializing},
	}
}

// installedWhileStarting creates the CRD before, during and after the start of a manager.
func (a *failureEnv) installedWhileStarting() {
	create := func() {
		if err := a.newClient().Create(a.t.Context(), a.crd.DeepCopy()); err != nil {
			a.t.Error(err)
		}
	}
	for name, install := range map[string]func(start func()){
		"before": func(start func()) { create(); start() },
		"together": func(start func()) {
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

// installedLater closes the watch of CRDs, as the API server does every few minutes.
func (a *failureEnv) installedLater() {
	p := a.newProxy(a.cfg)
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	a.waitForCondition(g, False, "NotServed")
	for n := range 3 {
		a.waitForQuiet(p, anyRequest, 500*time.Millisecond) // Waiting sends no requests.
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

// testTakenName installs another CRD with the names of the test's CRD. Therefore the test's CRD is not established
// until the other one is deleted.
func (a *failureEnv) testTakenName(take func(*apiextensionsv1.CustomResourceDefinitionNames)) {
	other := newCRD(schema.GroupVersionKind{Group: a.kind.Group, Version: "v1", Kind: "Thing"}, "things")
	take(&other.Spec.Names)
	a.installCRD(other)
	p := a.newProxy(a.cfg)
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroup(mgr), mgr)
	testenv.Must(a.t, a.newClient().Create(a.t.Context(), a.crd.DeepCopy()))
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

// storageInitializing responds like an API server that has just received a CRD.
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
