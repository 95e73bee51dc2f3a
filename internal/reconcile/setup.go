// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// WorkerOptions define how a controller's passes run.
type WorkerOptions struct {
	// Count is the maximum number of concurrent passes.
	Count int
	// PassTimeout limits one pass.
	PassTimeout time.Duration
	// MinBackoff and MaxBackoff limit the interval after a failed pass; if MinBackoff is zero, controller-runtime's
	// defaults apply.
	MinBackoff, MaxBackoff time.Duration
}

// Options converts w to the options of controller-runtime.
func (w WorkerOptions) Options() controller.Options {
	options := controller.Options{MaxConcurrentReconciles: w.Count, ReconciliationTimeout: w.PassTimeout}
	if w.MinBackoff > 0 {
		options.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](w.MinBackoff, w.MaxBackoff)
	}
	return options
}

// NewLabelledCache creates a cache of the objects of the given kinds whose labels match the selector, and adds it to
// the manager. A hub has many Pods and Jobs that do not belong to Torpor. An empty list of namespaces means all
// namespaces.
func NewLabelledCache(mgr manager.Manager, namespaces []string, selector labels.Selector, kinds ...client.Object) (cache.Cache, error) {
	labelled, err := BuildTrimmedCache(mgr, namespaces, selector, cache.TransformStripManagedFields(), kinds...)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(labelled); err != nil {
		return nil, fmt.Errorf("add a cache of %s: %w", selector, err)
	}
	return labelled, nil
}

// BuildTrimmedCache returns a cache like that of NewLabelledCache, but does not add it to the manager. The function
// trim removes unneeded fields from the objects before they are cached.
func BuildTrimmedCache(mgr manager.Manager, namespaces []string, selector labels.Selector, trim toolscache.TransformFunc, kinds ...client.Object) (cache.Cache, error) {
	byObject := map[client.Object]cache.ByObject{}
	for _, kind := range kinds {
		byObject[kind] = cache.ByObject{Label: selector, Transform: trim}
	}
	var watched map[string]cache.Config
	if len(namespaces) > 0 {
		watched = map[string]cache.Config{}
	}
	for _, namespace := range namespaces {
		watched[namespace] = cache.Config{}
	}
	labelled, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ByObject: byObject, DefaultNamespaces: watched,
	})
	if err != nil {
		return nil, fmt.Errorf("create a cache of %s: %w", selector, err)
	}
	return labelled, nil
}

// RequestByLabel returns a MapFunc that enqueues the object whose name is the value of the label, in the same
// namespace. Objects without the label enqueue nothing.
func RequestByLabel(label string) handler.MapFunc {
	return func(_ context.Context, obj client.Object) []ctrl.Request {
		name := obj.GetLabels()[label]
		if name == "" {
			return nil
		}
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
	}
}

// AnnotationChangedByOthers selects updates that change an annotation. Annotations in which Torpor's controllers store
// parts of a status do not count.
func AnnotationChangedByOthers() predicate.Predicate {
	others := func(o client.Object) map[string]string {
		annotations := maps.Clone(o.GetAnnotations())
		maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.HasPrefix(key, torporv1alpha1.StatusAnnotationPrefix) })
		return annotations
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return !maps.Equal(others(e.ObjectOld), others(e.ObjectNew)) }}
}

// FieldChanged selects updates that change the value that read returns.
func FieldChanged[T client.Object](read func(T) any) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := e.ObjectOld.(T)
		after, isAfter := e.ObjectNew.(T)
		return isBefore && isAfter && !equality.Semantic.DeepEqual(read(before), read(after))
	}}
}
