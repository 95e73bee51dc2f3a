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

func failuresOfNeighbours() []failureTest {
	return []failureTest{
		{"16 a kind that may not be listed fails its own group only", (*failureEnv).forbiddenKind},
		{"16 a kind whose list fails harms its own group only", (*failureEnv).brokenKind},
		{"24 setup may add nothing, or a runnable that is soon done", (*failureEnv).littleSetup},
		{"29 a function that panics, errs and blocks stops nothing", (*failureEnv).badFunction},
	}
}

// forbiddenKind gives the manager every right but that to one of its kinds.
func (a *failureEnv) forbiddenKind() {
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
			if err := a.newClient().Create(a.t.Context(), obj); err != nil {
				a.t.Fatal(err)
			}
		}
	}
	allow("crds", "apiextensions.k8s.io", "customresourcedefinitions")
	allow("maps", "", "configmaps")
	allow("things", a.kind.Group, "things")
	a.testBrokenNeighbour(a.newProxy(poor.Config()), func() { allow("widgets", a.kind.Group, "widgets") })
}

// brokenKind lets the server err, as it does when the kind's conversion webhook is down.
func (a *failureEnv) brokenKind() {
	p := a.newProxy(a.cfg)
	p.setFault(onRequests(a.isInformerRequest, answerStatus(500, "InternalError")))
	a.testBrokenNeighbour(p, p.clearFault)
}

// testBrokenNeighbour runs a group of widgets, which cannot sync until the cure, beside a group of things and a plain controller.
func (a *failureEnv) testBrokenNeighbour(p *faultyProxy, cure func()) {
	thing := schema.GroupVersionKind{Group: a.kind.Group, Version: a.kind.Version, Kind: "Thing"}
	for _, def := range []client.Object{a.crd, newCRD(thing, "things")} {
		if err := a.newClient().Create(a.t.Context(), def); err != nil {
			a.t.Fatal(err)
		}
	}
	things, maps := make(chan string, 100), make(chan string, 100)
	var isCured atomic.Bool
	mgr := a.newManagerFor(p.config())
	// Only the failures count here. On a busy machine a test may miss some of the short phases, and must not be held back
	// for minutes by the restart limit after five starts.
	sick := a.setUpGroupOf(mgr, Served(a.kind), watchingUntilSyncTimeout(a.kind, a.seen, &isCured),
		StartBackoff(wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 100, Cap: time.Second}),
		RestartLimit(1000, wait.Backoff{Duration: time.Second}))
	well, err := Setup(mgr, Served(thing), watching(thing, things), Name(a.name+"-well"))
	if err != nil {
		a.t.Fatal(err)
	}
	if err := watching(a.mustFindKind(&corev1.ConfigMap{}), maps)(mgr); err != nil {
		a.t.Fatal(err)
	}
	a.startManager(mgr)
	a.createObject("first")
	for n := range 3 {
		name := fmt.Sprintf("%s-%d", a.kind.Group, n)
		failed := a.countEntries(Failed)
		// One snapshot: a moment later the group may be Running once more, which clears its error.
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
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := a.newClient().Create(a.t.Context(), child); err != nil {
			a.t.Fatal(err)
		}
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

// watchingUntilSyncTimeout is watching with a short limit for the sync of what cannot sync, and a generous one afterwards.
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

// littleSetup adds nothing at first, then a runnable that is soon done beside a controller.
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

// badFunction is the condition of one group; another one beside it has to live.
func (a *failureEnv) badFunction() {
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
	mgr := a.newManagerFor(a.cfg)
	g := a.setUpGroupOf(mgr, bad, watching(a.mustFindKind(&corev1.Namespace{}), a.seen))
	if err := watching(a.mustFindKind(&corev1.ConfigMap{}), maps)(mgr); err != nil {
		a.t.Fatal(err)
	}
	a.startManager(mgr)
	a.expectReconcile(a.seen, "default")
	a.eventually("a call ignores its context", func(context.Context) (bool, error) { return blocked.Load() == 1, nil })
	a.waitForCondition(g, Unknown, "")
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: a.kind.Group}}
	if err := a.newClient().Create(a.t.Context(), child); err != nil {
		a.t.Fatal(err)
	}
	a.expectReconcile(maps, a.kind.Group)
	if calls.Load() != 4 {
		a.t.Errorf("%d calls, want 4: none while one has not returned", calls.Load())
	}
	close(release)
	a.waitForCondition(g, True, "")
	a.expectNoRestart()
}
