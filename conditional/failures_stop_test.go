// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func failuresOfStopping() []failureTest {
	return []failureTest{
		{"11 a starting group stops when its CRD is deleted", (*failureEnv).deletedWhileStarting},
		{"11 a draining group waits for its last worker before it restarts for a reinstalled CRD", (*failureEnv).installedWhileDraining},
		{"9 a hundred objects lose their finalizers before the group stops", (*failureEnv).finalizers},
		{"10 a reconcile that ignores its context never runs twice", (*failureEnv).deafReconcile},
		{"10 a read during the stop neither hangs nor creates an informer", (*failureEnv).lateReads},
		{"28 a shutdown while an informer cannot sync leaves nothing behind", (*failureEnv).shutdownWhileStarting},
		{"28 a shutdown while a reconcile runs leaves nothing behind", (*failureEnv).shutdownWhileBusy},
	}
}

// controlling returns a setup function that adds a plain controller for the kind.
func controlling(kind schema.GroupVersionKind, workers int, reconciler func(manager.Manager) reconcile.Func) SetupFunc {
	return func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).For(newObject(kind, "")).Named("controlling").
			WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
			Complete(reconciler(mgr))
	}
}

// finalizers delays the deletion of a CRD with the finalizers of a hundred objects. The group must not stop before its
// controller has removed the finalizers.
func (a *failureEnv) finalizers() {
	const count = 100
	a.installCRD(a.crd)
	a.createObject("0", "example.com/hold")
	c := a.newClient()
	for n := 1; n < count; n++ {
		w := newObject(a.kind, fmt.Sprint(n))
		w.SetFinalizers([]string{"example.com/hold"})
		testenv.Must(a.t, c.Create(a.t.Context(), w))
	}
	var taken atomic.Int32
	allowed := make(chan struct{})
	p := a.newProxy(a.cfg)
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroupOf(mgr, Served(a.kind), controlling(a.kind, 10, func(mgr manager.Manager) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			w := newObject(a.kind, "")
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, w); err != nil || w.GetDeletionTimestamp() == nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			select {
			case <-allowed:
			case <-ctx.Done():
				return reconcile.Result{}, ctx.Err()
			}
			w.SetFinalizers(nil)
			err := mgr.GetClient().Update(ctx, w)
			if err == nil {
				taken.Add(1)
			}
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	})), mgr)
	a.waitForPhase(g, Running)
	a.uninstallCRD(a.crd)
	a.eventually("the CRD is terminating", func(ctx context.Context) (bool, error) {
		return a.hasCondition(ctx, apiextensionsv1.Terminating, apiextensionsv1.ConditionTrue)
	})
	a.annotateCRD("terminating")
	a.waitForQuiet(p, isDiscovery(a.kind.GroupVersion()), time.Second)
	a.expectNoRestart()
	close(allowed)
	a.waitUntilGone(a.crd)
	a.waitForPhase(g, Dormant)
	if taken.Load() != count || a.countEntries(Draining) != 1 {
		a.t.Errorf("%d finalizers were taken off, %d stops, want %d and 1", taken.Load(), a.countEntries(Draining), count)
	}
}

// deafReconcile runs a reconcile that ignores its context, while the CRD is deleted and reinstalled.
func (a *failureEnv) deafReconcile() {
	a.installCRD(a.crd)
	release := make(chan struct{})
	var blocked atomic.Int32
	var mu sync.Mutex
	working, most := map[string]int{}, 0
	mgr := a.newManagerFor(a.cfg)
	late := make(chan error, 1)
	g := a.setUpGroupOf(mgr, Served(a.kind), controlling(a.kind, 4, func(mgr manager.Manager) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			mu.Lock()
			working[req.Name]++
			most = max(most, working[req.Name])
			mu.Unlock()
			if req.Name == "deaf" && blocked.Add(1) == 1 {
				<-release
				late <- mgr.GetCache().Get(context.WithoutCancel(ctx), req.NamespacedName, newObject(a.kind, ""))
			}
			mu.Lock()
			working[req.Name]--
			mu.Unlock()
			a.seen <- req.Name
			return reconcile.Result{}, nil
		}
	}), DrainTimeout(100*time.Millisecond))
	a.startManager(mgr)
	a.createObject("deaf")
	a.eventually("a reconcile ignores its context", func(context.Context) (bool, error) { return blocked.Load() == 1, nil })
	a.uninstallCRD(a.crd)
	a.waitForPhase(g, Stuck)
	a.waitUntilGone(a.crd)
	a.waitForCondition(g, False, "NotServed")
	a.installCRD(a.crd)
	a.waitForCondition(g, True, "Served")
	a.createObject("deaf")
	if phase, starts := g.Status().Phase, a.starts.Load(); phase != Stuck || starts != 1 {
		a.t.Errorf("the group is %s with %d starts while the old worker runs, want Stuck with 1", phase, starts)
	}
	close(release)
	if err := <-late; !errors.Is(err, ErrScopeClosed) {
		a.t.Errorf("a read of the old worker says %v, want ErrScopeClosed", err)
	}
	a.expectReconcile(a.seen, "deaf") // This is the reconcile that ignored its context.
	a.expectReconcile(a.seen, "deaf")
	a.waitForPhase(g, Running)
	mu.Lock()
	defer mu.Unlock()
	if most != 1 {
		a.t.Errorf("%d workers had one key, want 1", most)
	}
}

// deletedWhileStarting deletes the CRD while an informer waits for the list of objects.
func (a *failureEnv) deletedWhileStarting() {
	a.installCRD(a.crd)
	p := a.newProxy(a.cfg)
	p.setFault(a.unansweredList())
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroupOf(mgr, Served(a.kind), a.syncedSetup(a.seen)), mgr)
	a.waitForPhase(g, Starting)
	a.eventually("the objects are asked for", func(context.Context) (bool, error) { return p.countRequests(a.isInformerRequest) > 0, nil })
	a.uninstallCRD(a.crd)
	a.waitUntilGone(a.crd)
	a.waitForPhase(g, Dormant)
	p.clearFault()
	a.installCRD(a.crd)
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	if starts, runs := a.starts.Load(), a.countEntries(Running); starts != 2 || runs != 1 {
		a.t.Errorf("%d starts, of which %d ran, want 2 and 1", starts, runs)
	}
}

// installedWhileDraining reinstalls the CRD before the last worker has returned.
func (a *failureEnv) installedWhileDraining() {
	a.installCRD(a.crd)
	release := make(chan struct{})
	mgr := a.newManagerFor(a.cfg)
	g := a.startGroup(a.setUpGroupOf(mgr, Served(a.kind), controlling(a.kind, 1, func(manager.Manager) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			a.seen <- req.Name
			if req.Name == "slow" {
				<-ctx.Done()
				<-release
			}
			return reconcile.Result{}, nil
		}
	})), mgr)
	a.createObject("slow")
	a.expectReconcile(a.seen, "slow")
	a.uninstallCRD(a.crd)
	a.waitForPhase(g, Draining)
	a.waitUntilGone(a.crd)
	a.installCRD(a.crd)
	a.waitForCondition(g, True, "Served")
	a.createObject("first")
	if phase, starts := g.Status().Phase, a.starts.Load(); phase != Draining || starts != 1 || len(a.seen) > 0 {
		a.t.Errorf("the group is %s with %d starts while a worker runs, want Draining with 1", phase, starts)
	}
	close(release)
	a.expectReconcile(a.seen, "first")
	if starts := a.starts.Load(); starts != 2 {
		a.t.Errorf("%d starts, want 2", starts)
	}
}

// lateReads stops a group whose kind is still served, so a new informer would work.
func (a *failureEnv) lateReads() {
	a.installCRD(a.crd)
	a.createObject("first")
	p := a.newProxy(a.cfg)
	when := switchedCondition{says: make(chan Status)}
	late := make(chan error, 1)
	mgr := a.newManagerFor(p.config())
	g := a.startGroup(a.setUpGroupOf(mgr, when, controlling(a.kind, 1, func(mgr manager.Manager) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			a.seen <- req.Name
			<-ctx.Done()
			// Even with a context that is not cancelled, a read must neither hang nor create an informer.
			err := mgr.GetCache().Get(context.WithoutCancel(ctx), req.NamespacedName, newObject(a.kind, ""))
			other := newObject(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "")
			late <- mgr.GetCache().Get(context.WithoutCancel(ctx), req.NamespacedName, other)
			return reconcile.Result{}, err
		}
	})), mgr)
	secrets := func(r *http.Request) bool { return r.URL.Path == "/api/v1/secrets" }
	for n := range 3 {
		when.says <- Status{State: True}
		a.expectReconcile(a.seen, "first")
		when.says <- Status{State: False}
		select {
		case err := <-late:
			if !k8serrors.IsNotFound(err) && !errors.Is(err, ErrScopeClosed) {
				a.t.Errorf("a first read while it stops says %v, want NotFound or ErrScopeClosed", err)
			}
		case <-time.After(patience):
			a.t.Fatal("a read hangs after the stop")
		}
		a.waitForPhase(g, Dormant)
		a.eventually("the informers are gone", func(context.Context) (bool, error) {
			return p.countStreams(isWatch(a.isInformerRequest))+p.countStreams(isWatch(secrets)) == 0, nil
		})
		asked := p.countRequests(a.isInformerRequest) + p.countRequests(secrets)
		a.waitForQuiet(p, anyRequest, time.Second)
		if more := p.countRequests(a.isInformerRequest) + p.countRequests(secrets) - asked; more != 0 {
			a.t.Errorf("stop %d: %d requests to the kinds while nothing runs, want none", n, more)
		}
	}
}

// shutdownWhileStarting stops a manager whose group waits for a response that never arrives.
func (a *failureEnv) shutdownWhileStarting() {
	a.installCRD(a.crd)
	p := a.newProxy(a.cfg)
	p.setFault(a.unansweredList())
	mgr := a.newManagerFor(p.config())
	g := a.setUpGroupOf(mgr, Served(a.kind), a.syncedSetup(a.seen))
	stop := a.startManager(mgr)
	a.waitForPhase(g, Starting)
	a.eventually("the objects are asked for", func(context.Context) (bool, error) { return p.countRequests(a.isInformerRequest) > 0, nil })
	stop() // stop fails the test if the manager returns an error, for example because its grace period has elapsed.
	a.expectNothingLeft(g, p)
}

func (a *failureEnv) shutdownWhileBusy() {
	a.installCRD(a.crd)
	p := a.newProxy(a.cfg)
	mgr := a.newManagerFor(p.config())
	g := a.setUpGroupOf(mgr, Served(a.kind), controlling(a.kind, 1, func(manager.Manager) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			a.seen <- req.Name
			<-ctx.Done()
			return reconcile.Result{}, nil
		}
	}))
	stop := a.startManager(mgr)
	a.createObject("first")
	a.expectReconcile(a.seen, "first")
	stop()
	a.expectNothingLeft(g, p)
}

// expectNothingLeft checks that a group leaves nothing behind after its manager has stopped.
func (a *failureEnv) expectNothingLeft(g *Group, p *faultyProxy) {
	a.t.Helper()
	if phase := g.Status().Phase; phase != Dormant {
		a.t.Errorf("the group is %s after the manager has ended, want Dormant", phase)
	}
	a.eventually("nothing is open any more", func(context.Context) (bool, error) { return p.countStreams(anyRequest) == 0, nil })
	asked := p.countRequests(anyRequest)
	a.waitForQuiet(p, anyRequest, 500*time.Millisecond)
	if more := p.countRequests(anyRequest) - asked; more != 0 {
		a.t.Errorf("%d requests after the manager has ended, want none", more)
	}
}

func failuresOfNeighbours() []failureTest {
	return []failureTest{
		{"16 a kind without the right to list fails only its own group", (*failureEnv).forbiddenKind},
		{"16 a kind whose list fails affects only its own group", (*failureEnv).brokenKind},
		{"24 a setup function may add nothing, or a runnable that returns soon", (*failureEnv).littleSetup},
	}
}

// forbiddenKind grants the manager all rights except those to the kind of one group.
func (a *failureEnv) forbiddenKind() {
	poor := a.newUser(a.kind.Group, fullRight("apiextensions.k8s.io", "customresourcedefinitions"), fullRight("", "configmaps"), fullRight(a.kind.Group, "things"))
	a.testBrokenNeighbour(a.newProxy(poor), func() { a.grantRight(a.kind.Group+"-cure", a.kind.Group, fullRight(a.kind.Group, "widgets")) })
}

// brokenKind makes the server return errors, as while the kind's conversion webhook is down.
func (a *failureEnv) brokenKind() {
	p := a.newProxy(a.cfg)
	p.setFault(onRequests(a.isInformerRequest, answerStatus(500, "InternalError")))
	a.testBrokenNeighbour(p, p.clearFault)
}

// testBrokenNeighbour runs a group for widgets, which cannot sync until cure is called, together with a group for
// things and a plain controller.
func (a *failureEnv) testBrokenNeighbour(p *faultyProxy, cure func()) {
	thing := schema.GroupVersionKind{Group: a.kind.Group, Version: a.kind.Version, Kind: "Thing"}
	for _, def := range []client.Object{a.crd, newCRD(thing, "things")} {
		testenv.Must(a.t, a.newClient().Create(a.t.Context(), def))
	}
	things, maps := make(chan string, 100), make(chan string, 100)
	var isCured atomic.Bool
	mgr := a.newManagerFor(p.config())
	// The test counts only failures, because it may miss short phases on a busy machine. The default restart limit
	// would delay the test by minutes after five starts.
	sick := a.setUpGroupOf(mgr, Served(a.kind), watchingUntilSyncTimeout(a.kind, a.seen, &isCured),
		StartBackoff(wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 100, Cap: time.Second}),
		RestartLimit(1000, wait.Backoff{Duration: time.Second}))
	well := mustSetUp(a.t, mgr, Served(thing), watching(thing, things), Name(a.name+"-well"))
	testenv.Must(a.t, watching(a.mustFindKind(&corev1.ConfigMap{}), maps)(mgr))
	a.startManager(mgr)
	a.createObject("first")
	for n := range 3 {
		name := fmt.Sprintf("%s-%d", a.kind.Group, n)
		failed := a.countEntries(Failed)
		// Read the phase and the error from one snapshot, because the next start clears the error.
		var status GroupStatus
		a.eventually("the group has failed once more", func(context.Context) (bool, error) {
			status = sick.Status()
			return a.countEntries(Failed) > failed && status.Phase == Failed, nil
		})
		if status.Error == "" {
			a.t.Error("the group shows no error")
		}
		a.createObjectOf(thing, name)
		a.expectReconcile(things, name)
		a.createConfigMap(name)
		a.expectReconcile(maps, name)
	}
	if well.Status().Phase != Running {
		a.t.Errorf("the group of another kind is %+v, want Running", well.Status())
	}
	isCured.Store(true)
	cure()
	a.expectReconcile(a.seen, "first")
	a.waitForPhase(sick, Running)
}

// watchingUntilSyncTimeout is like watching, but CacheSyncTimeout is short while the sync cannot succeed, and long
// after the repair.
func watchingUntilSyncTimeout(kind schema.GroupVersionKind, seen chan string, isCured *atomic.Bool) SetupFunc {
	return func(mgr manager.Manager) error {
		r := &recordingReconciler{client: mgr.GetClient(), kind: kind, seen: seen}
		limit := time.Second
		if isCured.Load() {
			limit = patience
		}
		return ctrl.NewControllerManagedBy(mgr).For(newObject(kind, "")).Named("impatient").
			WithOptions(controller.Options{CacheSyncTimeout: limit}).Complete(r)
	}
}

// littleSetup adds nothing at the first start. At the second start it adds a runnable that returns immediately, and a
// controller.
func (a *failureEnv) littleSetup() {
	when := switchedCondition{says: make(chan Status)}
	done := make(chan struct{}, 1)
	mgr := a.newManagerFor(a.cfg)
	g := a.startGroup(a.setUpGroupOf(mgr, when, func(mgr manager.Manager) error {
		if a.starts.Load() == 1 {
			return nil
		}
		err := mgr.Add(manager.RunnableFunc(func(context.Context) error {
			done <- struct{}{}
			return nil
		}))
		return errors.Join(err, watching(a.mustFindKind(&corev1.Namespace{}), a.seen)(mgr))
	}), mgr)
	when.says <- Status{State: True}
	a.waitForPhase(g, Running)
	when.says <- Status{State: False}
	a.waitForPhase(g, Dormant)
	when.says <- Status{State: True}
	<-done
	a.expectReconcile(a.seen, "default")
	a.waitForPhase(g, Running)
	if starts, stops := a.starts.Load(), a.countEntries(Draining); starts != 2 || stops != 1 {
		a.t.Errorf("%d starts and %d stops, want 2 and 1: a runnable that is done ends nothing", starts, stops)
	}
}
