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
	"github.com/torpor-dev/torpor/internal/foreignswitch"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/stopadapter"
	stopadaptercontroller "github.com/torpor-dev/torpor/internal/stopadapter/controller"
)

const (
	// releaseTimeout is for how long a deleted adapter waits until what it has stopped can be given back: its role is often deleted with it.
	releaseTimeout = 5 * time.Minute
	// releaseInterval is how often it tries.
	releaseInterval = 5 * time.Second
	// releasePage is how many objects are read at once.
	releasePage = 500
)

// finalize restores what a deleted adapter has stopped. Objects of a kind that is not served any more are gone. What cannot be restored
// in time is left as it is, and told.
func (c Controller) finalize(ctx context.Context, a *torporv1alpha1.StopAdapter) (time.Duration, error) {
	c.groups.remove(ctx, a.Name) // The controller of the kind would go on stopping objects.
	err := c.release(ctx, a)
	if err == nil {
		return 0, nil
	}
	end := a.DeletionTimestamp.Add(releaseTimeout)
	message := "Expected to give back what is stopped, found: " + err.Error()
	if !c.Clock.Now().Before(end) {
		reconcile.EmitEvents(c.recorder, a, []decision.Event{{Warning: true, Reason: foreignswitch.EventObjectsLeft, Action: "Release", Note: message + "; it stays as it is"}})
		return 0, nil
	}
	reason := torporv1alpha1.StopAdapterFailedReason
	if k8serrors.IsForbidden(err) {
		reason, message = torporv1alpha1.StopAdapterForbiddenReason, message+"; make the ClusterRole again, with the label "+torporv1alpha1.StopAdapterRoleLabel
	}
	ready := decision.False(reason, fmt.Sprintf("%s; without it the StopAdapter goes at %s", message, end.UTC().Format(time.RFC3339)))
	reconcile.SetConditions(&a.Status.Conditions, map[string]decision.Condition{torporv1alpha1.StopAdapterReadyCondition: ready}, a.Generation, c.Clock)
	return releaseInterval, nil
}

// release gives the objects of all namespaces back, and goes on after one that it cannot.
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
	plan := stopadapter.Release(stopadapter.ObservedSwitch{Now: c.Clock.Now(), Object: obj}, "the StopAdapter "+a.Name+" is deleted")
	data, err := client.MergeFrom(obj).Data(plan.Next)
	if err == nil && string(data) != "{}" {
		err = reconcile.PatchObserved(ctx, c.client, obj, plan.Next.DeepCopy(), stopadaptercontroller.Name)
	}
	if err != nil {
		return fmt.Errorf("give %s/%s back: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	reconcile.EmitEvents(c.recorder, obj, plan.Events)
	return nil
}
