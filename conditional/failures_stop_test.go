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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func failuresOfStopping() []row {
	return []row{
		{"11 deleted while the group starts", (*arena).deletedWhileStarting},
		{"11 installed while the group drains", (*arena).installedWhileDraining},
		{"9 a hundred objects with finalizers", (*arena).finalizers},
		{"10 a reconcile ignores its context", (*arena).deafReconcile},
		{"10 a reconcile reads while it is stopped", (*arena).lateReads},
		{"15 a client that reads its writes", (*arena).readYourWrites},
		{"28 shutdown while an informer cannot sync", (*arena).shutdownWhileStarting},
		{"28 shutdown while a reconcile runs", (*arena).shutdownWhileBusy},
	}
}

// controlling is a setup function with a plain controller of the kind.
func controlling(kind schema.GroupVersionKind, workers int, reconciler func(manager.Manager) reconcile.Func) SetupFunc {
	return func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).For(objectOf(kind, "")).Named("controlling").
			WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
			Complete(reconciler(mgr))
	}
}

// finalizers lets a hundred objects keep their CRD, long enough for the group to stop wrongly.
func (a *arena) finalizers() {
	const count = 100
	a.install(a.def)
	a.make("0", "example.com/hold")
	c := a.client()
	for n := 1; n < count; n++ {
		w := objectOf(a.kind, fmt.Sprint(n))
		w.SetFinalizers([]string{"example.com/hold"})
		if err := c.Create(a.t.Context(), w); err != nil {
			a.t.Fatal(err)
		}
	}
	var taken atomic.Int32
	allowed := make(chan struct{})
	p := a.proxy(a.cfg)
	mgr := a.manager(p.config())
	g := a.run(a.groupOf(mgr, Served(a.kind), controlling(a.kind, 10, func(mgr manager.Manager) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			w := objectOf(a.kind, "")
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
	a.wait(g, Running)
	a.uninstall(a.def)
	a.eventually("the CRD is terminating", func(ctx context.Context) (bool, error) {
		return a.has(ctx, apiextensionsv1.Terminating, apiextensionsv1.ConditionTrue)
	})
	a.touch("terminating")
	a.quiet(p, discovery(a.kind.GroupVersion()), time.Second)
	a.undisturbed()
	close(allowed)
	a.gone(a.def)
	a.wait(g, Dormant)
	if taken.Load() != count || a.moves(Draining) != 1 {
		a.t.Errorf("%d finalizers were taken off, %d stops, want %d and 1", taken.Load(), a.moves(Draining), count)
	}
}

// deafReconcile lets one reconcile go on while its CRD goes and comes back.
func (a *arena) deafReconcile() {
	a.install(a.def)
	release := make(chan struct{})
	var blocked atomic.Int32
	var mu sync.Mutex
	working, most := map[string]int{}, 0
	mgr := a.manager(a.cfg)
	late := make(chan error, 1)
	g := a.groupOf(mgr, Served(a.kind), controlling(a.kind, 4, func(mgr manager.Manager) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			mu.Lock()
			working[req.Name]++
			most = max(most, working[req.Name])
			mu.Unlock()
			if req.Name == "deaf" && blocked.Add(1) == 1 {
				<-release
				late <- mgr.GetCache().Get(context.WithoutCancel(ctx), req.NamespacedName, objectOf(a.kind, ""))
			}
			mu.Lock()
			working[req.Name]--
			mu.Unlock()
			a.seen <- req.Name
			return reconcile.Result{}, nil
		}
	}), DrainTimeout(100*time.Millisecond))
	a.start(mgr)
	a.make("deaf")
	a.eventually("a reconcile ignores its context", func(context.Context) (bool, error) { return blocked.Load() == 1, nil })
	a.uninstall(a.def)
	a.wait(g, Stuck)
	a.gone(a.def)
	a.says(g, False, "NotServed")
	a.install(a.def)
	a.says(g, True, "Served")
	a.make("deaf")
	if phase, starts := g.Status().Phase, a.starts.Load(); phase != Stuck || starts != 1 {
		a.t.Errorf("the group is %s with %d starts while the old worker runs, want Stuck with 1", phase, starts)
	}
	close(release)
	if err := <-late; !errors.Is(err, ErrScopeClosed) {
		a.t.Errorf("a read of the old worker says %v, want ErrScopeClosed", err)
	}
	a.expect(a.seen, "deaf") // The old one.
	a.expect(a.seen, "deaf")
	a.wait(g, Running)
	mu.Lock()
	defer mu.Unlock()
	if most != 1 {
		a.t.Errorf("%d workers had one key, want 1", most)
	}
}

// deletedWhileStarting takes the CRD away while an informer waits for its objects.
func (a *arena) deletedWhileStarting() {
	a.install(a.def)
	p := a.proxy(a.cfg)
	p.ail(a.noList())
	mgr := a.manager(p.config())
	g := a.run(a.groupOf(mgr, Served(a.kind), a.synced(a.seen)), mgr)
	a.wait(g, Starting)
	a.eventually("the objects are asked for", func(context.Context) (bool, error) { return p.asks(a.used) > 0, nil })
	a.uninstall(a.def)
	a.gone(a.def)
	a.wait(g, Dormant)
	p.heal()
	a.install(a.def)
	a.make("first")
	a.expect(a.seen, "first")
	if starts, runs := a.starts.Load(), a.moves(Running); starts != 2 || runs != 1 {
		a.t.Errorf("%d starts, of which %d ran, want 2 and 1", starts, runs)
	}
}

// installedWhileDraining brings the CRD back before the last worker has returned.
func (a *arena) installedWhileDraining() {
	a.install(a.def)
	release := make(chan struct{})
	mgr := a.manager(a.cfg)
	g := a.run(a.groupOf(mgr, Served(a.kind), controlling(a.kind, 1, func(manager.Manager) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			a.seen <- req.Name
			if req.Name == "slow" {
				<-ctx.Done()
				<-release
			}
			return reconcile.Result{}, nil
		}
	})), mgr)
	a.make("slow")
	a.expect(a.seen, "slow")
	a.uninstall(a.def)
	a.wait(g, Draining)
	a.gone(a.def)
	a.install(a.def)
	a.says(g, True, "Served")
	a.make("first")
	if phase, starts := g.Status().Phase, a.starts.Load(); phase != Draining || starts != 1 || len(a.seen) > 0 {
		a.t.Errorf("the group is %s with %d starts while a worker runs, want Draining with 1", phase, starts)
	}
	close(release)
	a.expect(a.seen, "first")
	if starts := a.starts.Load(); starts != 2 {
		a.t.Errorf("%d starts, want 2", starts)
	}
}

// lateReads stops a group whose kind is still served, so that an informer that came to life again would thrive.
func (a *arena) lateReads() {
	a.install(a.def)
	a.make("first")
	p := a.proxy(a.cfg)
	when := switched{says: make(chan Status)}
	late := make(chan error, 1)
	mgr := a.manager(p.config())
	g := a.run(a.groupOf(mgr, when, controlling(a.kind, 1, func(mgr manager.Manager) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			a.seen <- req.Name
			<-ctx.Done()
			// Even with a context that lives on: a read must neither hang nor bring an informer.
			err := mgr.GetCache().Get(context.WithoutCancel(ctx), req.NamespacedName, objectOf(a.kind, ""))
			other := objectOf(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "")
			late <- mgr.GetCache().Get(context.WithoutCancel(ctx), req.NamespacedName, other)
			return reconcile.Result{}, err
		}
	})), mgr)
	secrets := func(r *http.Request) bool { return r.URL.Path == "/api/v1/secrets" }
	for n := range 3 {
		when.says <- Status{State: True}
		a.expect(a.seen, "first")
		when.says <- Status{State: False}
		select {
		case err := <-late:
			if !k8serrors.IsNotFound(err) && !errors.Is(err, ErrScopeClosed) {
				a.t.Errorf("a first read while it stops says %v, want NotFound or ErrScopeClosed", err)
			}
		case <-time.After(patience):
			a.t.Fatal("a read hangs after the stop")
		}
		a.wait(g, Dormant)
		a.eventually("the informers are gone", func(context.Context) (bool, error) {
			return p.streams(watches(a.used))+p.streams(watches(secrets)) == 0, nil
		})
		asked := p.asks(a.used) + p.asks(secrets)
		a.quiet(p, everything, time.Second)
		if more := p.asks(a.used) + p.asks(secrets) - asked; more != 0 {
			a.t.Errorf("stop %d: %d requests to the kinds while nothing runs, want none", n, more)
		}
	}
}

// readYourWrites gives each start a client that waits for its own writes in the scope's cache.
func (a *arena) readYourWrites() {
	a.install(a.def)
	var missed, found atomic.Int32
	setup := controlling(a.kind, 1, func(mgr manager.Manager) reconcile.Func {
		c := a.consistent(mgr)
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			for n := range 10 {
				child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, GenerateName: req.Name + "-"}}
				if err := c.Create(ctx, child); err != nil {
					return reconcile.Result{}, err
				}
				err := c.Get(ctx, client.ObjectKeyFromObject(child), &corev1.ConfigMap{})
				switch {
				case err == nil:
					found.Add(1)
				case ctx.Err() == nil:
					missed.Add(1)
					a.t.Logf("read %d after a write: %v", n, err)
				}
			}
			a.seen <- req.Name
			<-ctx.Done()
			_ = c.Get(context.WithoutCancel(ctx), req.NamespacedName, &corev1.ConfigMap{}) // It must only return.
			return reconcile.Result{}, nil
		}
	})
	mgr := a.manager(a.cfg)
	g := a.run(a.groupOf(mgr, Served(a.kind), setup), mgr)
	for _, name := range []string{"first", "second", "third"} {
		a.make(name)
		a.expect(a.seen, name)
		a.uninstall(a.def)
		a.wait(g, Dormant)
		a.gone(a.def)
		a.install(a.def)
	}
	if found.Load() != 30 || missed.Load() != 0 {
		a.t.Errorf("%d writes were read back, %d were not, want 30 and none", found.Load(), missed.Load())
	}
}

// consistent returns a client of the scope with the option that the manager's client.Options have outside.
func (a *arena) consistent(mgr manager.Manager) client.Client {
	c, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache(), EnableReadYourWritesConsistency: new(true)},
	})
	if err != nil {
		a.t.Error(err)
	}
	return c
}

// shutdownWhileStarting stops a manager whose group waits for an answer that does not come.
func (a *arena) shutdownWhileStarting() {
	a.install(a.def)
	p := a.proxy(a.cfg)
	p.ail(a.noList())
	mgr := a.manager(p.config())
	g := a.groupOf(mgr, Served(a.kind), a.synced(a.seen))
	stop := a.start(mgr)
	a.wait(g, Starting)
	a.eventually("the objects are asked for", func(context.Context) (bool, error) { return p.asks(a.used) > 0, nil })
	stop() // It fails the test when the manager ends with an error, such as that of its grace period.
	a.ended(g, p)
}

func (a *arena) shutdownWhileBusy() {
	a.install(a.def)
	p := a.proxy(a.cfg)
	mgr := a.manager(p.config())
	g := a.groupOf(mgr, Served(a.kind), controlling(a.kind, 1, func(manager.Manager) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			a.seen <- req.Name
			<-ctx.Done()
			return reconcile.Result{}, nil
		}
	}))
	stop := a.start(mgr)
	a.make("first")
	a.expect(a.seen, "first")
	stop()
	a.ended(g, p)
}

// ended fails unless a group whose manager has ended has left nothing.
func (a *arena) ended(g *Group, p *proxy) {
	a.t.Helper()
	if phase := g.Status().Phase; phase != Dormant {
		a.t.Errorf("the group is %s after the manager has ended, want Dormant", phase)
	}
	a.eventually("nothing is open any more", func(context.Context) (bool, error) { return p.streams(everything) == 0, nil })
	asked := p.asks(everything)
	a.quiet(p, everything, 500*time.Millisecond)
	if more := p.asks(everything) - asked; more != 0 {
		a.t.Errorf("%d requests after the manager has ended, want none", more)
	}
}
