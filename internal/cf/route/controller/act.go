// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/torpor-dev/torpor/internal/cf/route"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// act creates Services before the objects that send requests to them, and deletes Services after these objects.
func (c Controller) act(ctx context.Context, seen route.Observed, plan route.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	remaining := map[string]*corev1.Service{}
	for i := range seen.Services {
		remaining[seen.Services[i].Name] = &seen.Services[i]
	}
	for _, wanted := range plan.Services {
		if err := c.applyService(ctx, remaining[wanted.Name], wanted); err != nil {
			return fmt.Errorf("write the Service %s: %w", wanted.Name, err)
		}
		delete(remaining, wanted.Name)
	}
	if err := c.publish(ctx, seen, plan); err != nil {
		return fmt.Errorf("publish the address: %w", err)
	}
	for _, service := range remaining {
		if err := reconcile.DeleteObserved(ctx, c.client, service); err != nil {
			return fmt.Errorf("delete the Service %s: %w", service.Name, err)
		}
	}
	return nil
}

func (c Controller) applyService(ctx context.Context, is, wanted *corev1.Service) error {
	if is == nil {
		return c.create(ctx, wanted)
	}
	after := is.DeepCopy()
	if after.Labels == nil {
		after.Labels = map[string]string{}
	}
	maps.Copy(after.Labels, wanted.Labels)
	after.Spec.Selector = wanted.Spec.Selector
	if port := wanted.Spec.Ports[0]; len(is.Spec.Ports) != 1 || is.Spec.Ports[0].Port != port.Port || is.Spec.Ports[0].TargetPort != port.TargetPort {
		after.Spec.Ports = wanted.Spec.Ports
	}
	return c.patch(ctx, is, after)
}

func (c Controller) publish(ctx context.Context, seen route.Observed, plan route.Plan) error {
	switch {
	case plan.HTTPRoute != nil && seen.HTTPRoute == nil:
		return c.create(ctx, plan.HTTPRoute)
	case plan.HTTPRoute != nil:
		after := seen.HTTPRoute.DeepCopy()
		after.Spec = plan.HTTPRoute.Spec
		return c.patch(ctx, seen.HTTPRoute, after)
	case plan.Ingress != nil && seen.Ingress == nil:
		return c.create(ctx, plan.Ingress)
	case plan.Ingress != nil:
		after := seen.Ingress.DeepCopy()
		after.Spec.Rules = plan.Ingress.Spec.Rules
		// If no class is configured, the default that the cluster has set is kept.
		if plan.Ingress.Spec.IngressClassName != nil {
			after.Spec.IngressClassName = plan.Ingress.Spec.IngressClassName
		}
		return c.patch(ctx, seen.Ingress, after)
	default:
		return c.unpublish(ctx, seen.HTTPRoute, seen.Ingress)
	}
}

func (c Controller) unpublish(ctx context.Context, httpRoute *gatewayv1.HTTPRoute, ingress *networkingv1.Ingress) error {
	if httpRoute != nil {
		return reconcile.DeleteObserved(ctx, c.client, httpRoute)
	}
	if ingress != nil {
		return reconcile.DeleteObserved(ctx, c.client, ingress)
	}
	return nil
}

func (c Controller) create(ctx context.Context, obj client.Object) error {
	err := c.client.Create(ctx, obj, client.FieldOwner(Name))
	if k8serrors.IsAlreadyExists(err) {
		return reconcile.ErrStale
	}
	return err
}

func (c Controller) patch(ctx context.Context, before, after client.Object) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return reconcile.PatchObserved(ctx, c.client, before, after, Name)
}
