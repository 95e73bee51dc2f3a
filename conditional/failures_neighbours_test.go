// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func failuresOfNeighbours() []row {
	return []row{
		{"16 a kind that may not be listed", (*arena).forbiddenKind},
		{"16 a kind whose list fails", (*arena).brokenKind},
		{"24 setup adds little", (*arena).littleSetup},
		{"29 a function that panics, errs and blocks", (*arena).badFunction},
	}
}

// forbiddenKind gives the manager every right but that to one of its kinds.
func (a *arena) forbiddenKind() {
	poor, err := a.env.AddUser(envtest.User{Name: a.kind.Group}, a.cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	allow := func(name, group string, resources ...string) {
		a.t.Helper()
		name = a.kind.Group + "-" + name
		for _, obj := range []client.Object{
			&rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: resources, Verbs: []string{"*"}}},
			},
			&rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: a.kind.Group}},
			},
		} {
			if err := a.client().Create(a.t.Context(), obj); err != nil {
				a.t.Fatal(err)
			}
		}
	}
	allow("crds", "apiextensions.k8s.io", "customresourcedefinitions")
	allow("maps", "", "configmaps")
	allow("things", a.kind.Group, "things")
	a.alone(a.proxy(poor.Config()), func() { allow("widgets", a.kind.Group, "widgets") })
}

// brokenKind lets the server err, as it does when the kind's conversion webhook is down.
func (a *arena) brokenKind() {
	p := a.proxy(a.cfg)
	p.ail(on(a.used, says(500, "InternalError")))
	a.alone(p, p.heal)
}

// alone runs a group of widgets, which cannot sync until the cure, beside a group of things and a plain controller.
func (a *arena) alone(p *proxy, cure func()) {
	thing := schema.GroupVersionKind{Group: a.kind.Group, Version: a.kind.Version, Kind: "Thing"}
	for _, def := range []client.Object{a.def, crdOf(thing, "things")} {
		if err := a.client().Create(a.t.Context(), def); err != nil {
			a.t.Fatal(err)
		}
	}
	things, maps := make(chan string, 100), make(chan string, 100)
	mgr := a.manager(p.config())
	sick := a.groupOf(mgr, Served(a.kind), impatient(a.kind, a.seen), StartBackoff(wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 100, Cap: time.Second}))
	well, err := Setup(mgr, Served(thing), watching(thing, things), Name(a.name+"-well"))
	if err != nil {
		a.t.Fatal(err)
	}
	if err := watching(a.kindOf(&corev1.ConfigMap{}), maps)(mgr); err != nil {
		a.t.Fatal(err)
	}
	a.start(mgr)
	a.make("first")
	for n := range 3 {
		name := fmt.Sprintf("%s-%d", a.kind.Group, n)
		failed := a.moves(Failed)
		a.eventually("the group has failed once more", func(context.Context) (bool, error) {
			return a.moves(Failed) > failed && sick.Status().Phase == Failed, nil
		})
		if sick.Status().Error == "" {
			a.t.Error("the group tells no error")
		}
		a.makeOf(thing, name)
		a.expect(things, name)
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := a.client().Create(a.t.Context(), child); err != nil {
			a.t.Fatal(err)
		}
		a.expect(maps, name)
	}
	if well.Status().Phase != Running {
		a.t.Errorf("the group of another kind is %+v, want Running", well.Status())
	}
	cure()
	a.expect(a.seen, "first")
	a.wait(sick, Running)
}

// impatient is watching with a short limit for the sync.
func impatient(kind schema.GroupVersionKind, seen chan string) SetupFunc {
	return func(mgr manager.Manager) error {
		r := &recorder{client: mgr.GetClient(), kind: kind, seen: seen}
		return ctrl.NewControllerManagedBy(mgr).For(objectOf(kind, "")).Named("impatient").
			WithOptions(controller.Options{CacheSyncTimeout: time.Second}).Complete(r)
	}
}

// littleSetup adds nothing at first, then a runnable that is soon done beside a controller.
func (a *arena) littleSetup() {
	when := switched{says: make(chan Status)}
	done := make(chan struct{}, 1)
	mgr := a.manager(a.cfg)
	g := a.run(a.groupOf(mgr, when, func(mgr manager.Manager) error {
		if a.starts.Load() == 1 {
			return nil
		}
		err := mgr.Add(manager.RunnableFunc(func(context.Context) error {
			done <- struct{}{}
			return nil
		}))
		return errors.Join(err, watching(a.kindOf(&corev1.Namespace{}), a.seen)(mgr))
	}), mgr)
	when.says <- Status{State: True}
	a.wait(g, Running)
	when.says <- Status{State: False}
	a.wait(g, Dormant)
	when.says <- Status{State: True}
	<-done
	a.expect(a.seen, "default")
	a.wait(g, Running)
	if starts, stops := a.starts.Load(), a.moves(Draining); starts != 2 || stops != 1 {
		a.t.Errorf("%d starts and %d stops, want 2 and 1: a runnable that is done ends nothing", starts, stops)
	}
}

// badFunction is the condition of one group; another one beside it has to live.
func (a *arena) badFunction() {
	release := make(chan struct{})
	var calls, blocked atomic.Int32
	bad := Func("bad", 50*time.Millisecond, func(context.Context) (bool, error) {
		switch calls.Add(1) {
		case 1:
			panic("boom")
		case 2:
			return false, errors.New("boom")
		case 4:
			blocked.Add(1)
			<-release
			blocked.Add(-1)
			return false, nil // Too late to count.
		}
		return true, nil
	})
	maps := make(chan string, 100)
	mgr := a.manager(a.cfg)
	g := a.groupOf(mgr, bad, watching(a.kindOf(&corev1.Namespace{}), a.seen))
	if err := watching(a.kindOf(&corev1.ConfigMap{}), maps)(mgr); err != nil {
		a.t.Fatal(err)
	}
	a.start(mgr)
	a.expect(a.seen, "default")
	a.eventually("a call ignores its context", func(context.Context) (bool, error) { return blocked.Load() == 1, nil })
	a.says(g, Unknown, "")
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: a.kind.Group}}
	if err := a.client().Create(a.t.Context(), child); err != nil {
		a.t.Fatal(err)
	}
	a.expect(maps, a.kind.Group)
	if calls.Load() != 4 {
		a.t.Errorf("%d calls, want 4: none while one has not returned", calls.Load())
	}
	close(release)
	a.says(g, True, "")
	a.undisturbed()
}
