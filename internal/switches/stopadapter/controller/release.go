// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	fieldswitchcontroller "github.com/torpor-dev/torpor/internal/switches/fieldswitch/controller"
	"github.com/torpor-dev/torpor/internal/switches/stopadapter"
)

const (
	// releaseTimeout is how long the controller tries to release the objects that a deleted adapter has stopped. The
	// attempts can fail, because the adapter's ClusterRole is often deleted together with the adapter.
	releaseTimeout = 5 * time.Minute
	// releaseInterval is the interval between these attempts.
	releaseInterval = 5 * time.Second
	// releasePage is the page size of the list of objects.
	releasePage = 500
)

// finalize restores the objects that only Slumbers have stopped through a deleted adapter. If the kind is no longer
// served, its objects are gone. Objects that cannot be restored within releaseTimeout are not changed, and an event
// reports this.
func (c Controller) finalize(ctx context.Context, a *torporv1alpha1.StopAdapter) (time.Duration, error) {
	c.groups.remove(ctx, a.Name) // Otherwise the controller of the kind would continue to stop objects.
	err := c.release(ctx, a)
	if err == nil {
		return 0, nil
	}
	end := a.DeletionTimestamp.Add(releaseTimeout)
	message := "Expected to restore the stopped objects, found: " + err.Error()
	if !c.Clock.Now().Before(end) {
		reconcile.EmitEvents(c.recorder, a, []decision.Event{{Warning: true, Reason: stopadapter.EventObjectsLeft, Action: "Release", Note: message + "; objects that are not restored remain stopped"}})
		return 0, nil
	}
	reason := torporv1alpha1.StopAdapterFailedReason
	if k8serrors.IsForbidden(err) {
		reason, message = torporv1alpha1.StopAdapterForbiddenReason, message+"; create the ClusterRole again, with the label "+torporv1alpha1.StopAdapterRoleLabel
	}
	ready := decision.False(reason, fmt.Sprintf("%s; the StopAdapter is removed at %s even if objects are still stopped", message, end.UTC().Format(time.RFC3339)))
	reconcile.SetConditions(&a.Status.Conditions, map[string]decision.Condition{torporv1alpha1.StopAdapterReadyCondition: ready}, a.Generation, c.Clock)
	return releaseInterval, nil
}

// release releases the objects of all namespaces (see fieldswitch.Release), and continues after a failure to write one.
func (c Controller) release(ctx context.Context, a *torporv1alpha1.StopAdapter) error {
	target := a.Spec.Target
	var failure error
	for _, namespace := range c.listNamespaces() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: target.Group, Version: target.Version, Kind: target.Kind + "List"})
		for {
			callCtx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
			err := c.live.List(callCtx, list, client.InNamespace(namespace), client.Limit(releasePage), client.Continue(list.GetContinue()))
			cancel()
			if meta.IsNoMatchError(err) || k8serrors.IsNotFound(err) {
				return failure
			}
			if err != nil {
				return fmt.Errorf("list the objects of kind %s: %w", target.Kind, err)
			}
			for i := range list.Items {
				if err := c.releaseObject(ctx, a, &list.Items[i]); err != nil {
					failure = err
				}
			}
			if list.GetContinue() == "" {
				break
			}
		}
	}
	return failure
}

func (c Controller) releaseObject(ctx context.Context, a *torporv1alpha1.StopAdapter, obj *unstructured.Unstructured) error {
	plan := fieldswitch.Release(fieldswitch.ObservedSwitch{Now: c.Clock.Now(), Object: obj}, "the StopAdapter "+a.Name+" is deleted")
	data, err := client.MergeFrom(obj).Data(plan.Next)
	if err == nil && string(data) != "{}" {
		err = reconcile.PatchObserved(ctx, c.client, obj, plan.Next.DeepCopy(), fieldswitchcontroller.Name)
	}
	if err != nil {
		return fmt.Errorf("restore %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	reconcile.EmitEvents(c.recorder, obj, plan.Events)
	return nil
}
