// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What follows is an operator as kubebuilder lays it out: a kind, and a reconciler that keeps one ConfigMap per object.

// Widget has a message that a ConfigMap of its name repeats.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              WidgetSpec `json:"spec"`
}

// WidgetSpec is what is wanted.
type WidgetSpec struct {
	Message string `json:"message,omitempty"`
}

// WidgetList is many of them.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Widget `json:"items"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	out := &Widget{TypeMeta: w.TypeMeta, Spec: w.Spec}
	w.DeepCopyInto(&out.ObjectMeta)
	return out
}

func (l *WidgetList) DeepCopyObject() runtime.Object {
	out := &WidgetList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		if w, ok := l.Items[i].DeepCopyObject().(*Widget); ok {
			out.Items = append(out.Items, *w)
		}
	}
	return out
}

func addWidgets(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(widgetKind().GroupVersion(), &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(scheme, widgetKind().GroupVersion())
}

// widgetReconciler reports the names that it has reconciled.
type widgetReconciler struct {
	client.Client
	Scheme *runtime.Scheme
	seen   chan string
}

func (r *widgetReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	err := r.repeatMessage(ctx, req.NamespacedName)
	select {
	case r.seen <- req.Name:
	case <-ctx.Done():
	}
	return reconcile.Result{}, err
}

func (r *widgetReconciler) repeatMessage(ctx context.Context, key client.ObjectKey) error {
	var w Widget
	if err := r.Get(ctx, key, &w); err != nil {
		return client.IgnoreNotFound(err)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		child.Data = map[string]string{"message": w.Spec.Message}
		return ctrl.SetControllerReference(&w, child, r.Scheme)
	})
	return err
}

// SetupWithManager is what kubebuilder writes.
func (r *widgetReconciler) SetupWithManager(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&Widget{}).
		Owns(&corev1.ConfigMap{}).
		Complete(r)
}

// SetupConditionally is the same but for one line.
func (r *widgetReconciler) SetupConditionally(mgr manager.Manager) error {
	return NewControllerManagedBy(mgr).
		For(&Widget{}).
		Owns(&corev1.ConfigMap{}).
		Complete(r)
}

func newWidgetReconciler(mgr manager.Manager) *widgetReconciler {
	return &widgetReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(), seen: make(chan string, 100)}
}
