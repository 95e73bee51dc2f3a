// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// finishing wraps a reconciler so that a reconcile can continue after the stop.
func finishing(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		return r.Reconcile(context.WithoutCancel(ctx), req)
	})
}

// TestAStopInPeace stops a group during a reconcile that then writes with its scope's client. The write has to succeed
// before the stop is complete.
func TestAStopInPeace(t *testing.T) {
	s := startAPIServer(t)
	entered, proceed := make(chan struct{}, 100), make(chan struct{})
	wrote := make(chan error, 100)
	setup := func(mgr manager.Manager) error {
		work := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			if req.Name != "work" {
				return reconcile.Result{}, nil
			}
			entered <- struct{}{}
			<-proceed
			var cm corev1.ConfigMap
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, &cm); err != nil {
				return reconcile.Result{}, err
			}
			cm.Data = map[string]string{"done": "yes"}
			err := mgr.GetClient().Update(ctx, &cm)
			wrote <- err
			return reconcile.Result{}, err
		})
		return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("worker").Complete(finishing(work))
	}
	mgr := s.newManagerFor(s.cfg)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"}}
	work := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work"}}
	for _, cm := range []*corev1.ConfigMap{owner, work} {
		testenv.Must(t, s.newClient().Create(t.Context(), cm))
	}
	when := switchedCondition{says: make(chan Status)}
	group := mustSetUp(t, mgr, when, setup, Events(mgr.GetEventRecorder("operator"), owner))
	s.startManager(mgr)
	when.says <- Status{State: True}
	<-entered
	when.says <- Status{State: False}
	s.waitForPhase(group, Draining)
	close(proceed)
	s.waitForPhase(group, Dormant)
	if err := <-wrote; err != nil {
		t.Errorf("the reconcile could not end in peace: %v", err)
	}
	s.eventually("both events are there", func(ctx context.Context) (bool, error) {
		var list eventsv1.EventList
		if err := s.newClient().List(ctx, &list, client.InNamespace("default")); err != nil {
			return false, err
		}
		var reasons []string
		for _, e := range list.Items {
			if e.Regarding.Name == owner.Name {
				reasons = append(reasons, e.Reason)
			}
		}
		slices.Sort(reasons)
		return slices.Equal(reasons, []string{ControllerStarted, ControllerStopped}), nil
	})
}
