// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/deployment"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
)

// observe reads the app, and checks whether a later deployment has superseded this one.
func (c Controller) observe(ctx context.Context, d *torporv1alpha1.CFDeployment) (deployment.Observed, error) {
	o := deployment.Observed{Deployment: d}
	if revision.IsDeploymentOver(d) {
		var err error
		o.Finished, err = c.listFinished(ctx, d)
		return o, err
	}
	var app korifiv1alpha1.CFApp
	key := client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.AppRef.Name}
	err := c.client.Get(ctx, key, &app)
	if k8serrors.IsNotFound(err) {
		// The app is read from the API server, because the cache may lack a new app. Finishing a deployment whose app
		// does not exist is permanent.
		err = c.live.Get(ctx, key, &app)
	}
	if k8serrors.IsNotFound(err) {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("read the app: %w", err)
	}
	statusannotation.RestoreStatus(&app)
	o.App, o.AnotherWriter = &app, c.Guard.FindOther(ctx, &app, c.Clock.Now())
	if deployment.AwaitsCancel(d, &app) {
		// This read bypasses the cache, because an LRP that is being deleted cannot be restored.
		var lrps eiriniv1.LRPList
		if err := c.live.List(ctx, &lrps, client.InNamespace(d.Namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app.Name}); err != nil {
			return o, fmt.Errorf("list the app's LRPs: %w", err)
		}
		o.LRPs = lrps.Items
	}
	name := app.Annotations[torporv1alpha1.DeploymentAnnotation]
	if name == "" || name == d.Name {
		return o, nil
	}
	var other torporv1alpha1.CFDeployment
	err = c.client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: name}, &other)
	if client.IgnoreNotFound(err) != nil {
		return o, fmt.Errorf("read the deployment in the app's annotation: %w", err)
	}
	o.HasLaterDeployment = err == nil && revision.CompareByAge(&other, d) > 0
	return o, nil
}

// listFinished lists the finished deployments of the same app that are not being deleted.
func (c Controller) listFinished(ctx context.Context, d *torporv1alpha1.CFDeployment) ([]torporv1alpha1.CFDeployment, error) {
	var list torporv1alpha1.CFDeploymentList
	if err := c.client.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingFields{byApp: d.Spec.AppRef.Name}); err != nil {
		return nil, fmt.Errorf("list the app's deployments: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(other torporv1alpha1.CFDeployment) bool {
		return !revision.IsDeploymentOver(&other) || !other.DeletionTimestamp.IsZero()
	}), nil
}
