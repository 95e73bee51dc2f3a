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
)

// TestAStopInPeace stops a group in the middle of a reconcile, which then writes through its scope, and looks at the events of both.
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
		return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("worker").Complete(GracefulReconciler(work, patience))
	}
	mgr := s.newManagerFor(s.cfg)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"}}
	work := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work"}}
	for _, cm := range []*corev1.ConfigMap{owner, work} {
		if err := s.newClient().Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	when := switchedCondition{says: make(chan Status)}
	group, err := Setup(mgr, when, setup, Events(mgr.GetEventRecorder("operator"), owner))
	if err != nil {
		t.Fatal(err)
	}
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
