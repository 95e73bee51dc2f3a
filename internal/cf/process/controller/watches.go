// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// These are the cache indexes of processes by their app and of LRPs by their process. Their names differ from those of
// the controller of apps, which uses the same cache.
const (
	byAppRef = "spec.appRef.name"
	byOwner  = "ownerUID"
)

func addIndexes(mgr manager.Manager) error {
	ctx, indexer := context.Background(), mgr.GetFieldIndexer()
	err := indexer.IndexField(ctx, &korifiv1alpha1.CFProcess{}, byAppRef, func(o client.Object) []string {
		if process, ok := o.(*korifiv1alpha1.CFProcess); ok {
			return []string{process.Spec.AppRef.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index processes: %w", err)
	}
	err = indexer.IndexField(ctx, &eiriniv1.LRP{}, byOwner, func(o client.Object) []string {
		if owner := metav1.GetControllerOf(o); owner != nil {
			return []string{string(owner.UID)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index LRPs: %w", err)
	}
	return nil
}

// refusalOf returns the reason why Pods of an LRP are not created or cannot pull their image, or "".
func refusalOf(o client.Object) string {
	l, ok := o.(*eiriniv1.LRP)
	if !ok {
		return ""
	}
	ready := meta.FindStatusCondition(l.Status.Conditions, korifiv1alpha1.ReadyCondition)
	if ready == nil || ready.Reason != korifiv1alpha1.BlockedReason {
		return ""
	}
	return ready.Message
}

func refusalChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return refusalOf(e.ObjectOld) != refusalOf(e.ObjectNew) }}
}

func (c Controller) processesForApp(ctx context.Context, app client.Object) []ctrl.Request {
	return c.listRequests(ctx, app.GetNamespace(), app.GetName())
}

func (c Controller) processesForBuild(ctx context.Context, o client.Object) []ctrl.Request {
	if build, ok := o.(*korifiv1alpha1.CFBuild); ok {
		return c.listRequests(ctx, build.Namespace, build.Spec.AppRef.Name)
	}
	return nil
}

func (c Controller) processesForDeployment(ctx context.Context, o client.Object) []ctrl.Request {
	if d, ok := o.(*torporv1alpha1.CFDeployment); ok {
		return c.listRequests(ctx, d.Namespace, d.Spec.AppRef.Name)
	}
	return nil
}

// listRequests returns requests for all processes of an app.
func (c Controller) listRequests(ctx context.Context, namespace, app string) []ctrl.Request {
	var list korifiv1alpha1.CFProcessList
	if err := c.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{byAppRef: app}); err != nil {
		return nil
	}
	var all []ctrl.Request
	for i := range list.Items {
		all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return all
}

// specOrAnnotationsChanged selects changes to the spec and to annotations. It ignores status updates and the
// controllers' own annotations.
func specOrAnnotationsChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers())
}

// deploymentEnds selects the update that finishes or deletes a deployment, which can then no longer be cancelled.
func deploymentEnds() predicate.Predicate {
	return reconcile.FieldChanged(func(d *torporv1alpha1.CFDeployment) any { return revision.IsDeploymentOver(d) })
}

// scheduledStopsChanged selects changes to the stops that Slumbers request for an app.
func scheduledStopsChanged() predicate.Predicate {
	return reconcile.FieldChanged(func(app *korifiv1alpha1.CFApp) any { return app.Status.ScheduledStops })
}
