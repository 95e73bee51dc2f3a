// SPDX-License-Identifier: Apache-2.0

// Package controller publishes each CFRoute with a Service for each destination, and with an HTTPRoute or an Ingress.
package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/route"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name is the name of the controller, its event reporter and its field manager.
const Name = "torpor-routes"

// These are the cache indexes of CFRoutes.
const (
	byHost   = "host"
	byDomain = "domain"
	byApp    = "app"
	// byAppOfProcess is the cache index of CFProcesses by their app. Its name differs from those of other controllers,
	// which use the same cache.
	byAppOfProcess = "routedApp"
)

// Controller reconciles CFRoutes.
type Controller struct {
	// Clock is replaced in tests.
	Clock clock.PassiveClock
	// Publisher is the component that sends requests to apps.
	Publisher route.Publisher
	// WatchNamespaces restricts the controller to these namespaces. If it is empty, the controller handles all
	// namespaces.
	WatchNamespaces []string
	// Guard skips objects that another project, such as Korifi, writes. If it is nil, no object is skipped.
	Guard *reconcile.WriterGuard

	client client.Client
	// owned caches only the objects that routes own.
	owned cache.Cache
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfroutes,verbs=get;list;watch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfroutes/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfdomains;cfapps;cfprocesses,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client = mgr.GetClient()
	ofRoutes, err := labels.NewRequirement(korifiv1alpha1.RouteGUIDLabel, selection.Exists, nil)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	kinds := []client.Object{&corev1.Service{}, c.publishedKind()}
	if c.owned, err = reconcile.NewLabelledCache(mgr, c.WatchNamespaces, labels.NewSelector().Add(*ofRoutes), kinds...); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	for field, valueOf := range map[string]func(*korifiv1alpha1.CFRoute) []string{byHost: hostOf, byDomain: domainOf, byApp: appsOf} {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), &korifiv1alpha1.CFRoute{}, field, indexRoutes(valueOf)); err != nil {
			return fmt.Errorf("set up %s: index routes: %w", Name, err)
		}
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &korifiv1alpha1.CFProcess{}, byAppOfProcess, func(o client.Object) []string { return []string{appOfProcess(o)} }); err != nil {
		return fmt.Errorf("set up %s: index processes: %w", Name, err)
	}
	b := builder.ControllerManagedBy(mgr).Named(Name).
		WithOptions(reconcile.WorkerOptions{Count: 5, PassTimeout: time.Minute}.Options()).
		For(&korifiv1alpha1.CFRoute{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// If a host or a path becomes free, the next route for it is served without delay. The other routes of a host
		// are also enqueued when a route is created. Timestamps have whole seconds, so the new route may count as the
		// oldest.
		Watches(&korifiv1alpha1.CFRoute{}, handler.EnqueueRequestsFromMapFunc(c.routesBy(byHost, hostOfObject)), builder.WithPredicates(addressChanged())).
		Watches(&korifiv1alpha1.CFDomain{}, handler.EnqueueRequestsFromMapFunc(c.routesOfSameDomains)).
		Watches(&korifiv1alpha1.CFApp{}, handler.EnqueueRequestsFromMapFunc(c.routesBy(byApp, keyOfObject)), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, scheduledStopsChanged()))).
		Watches(&korifiv1alpha1.CFProcess{}, handler.EnqueueRequestsFromMapFunc(c.routesBy(byApp, appOfProcess)), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	for _, kind := range kinds {
		b = b.WatchesRawSource(source.Kind(c.owned, kind, handler.EnqueueRequestsFromMapFunc(reconcile.RequestByLabel(korifiv1alpha1.RouteGUIDLabel))))
	}
	err = b.Complete(&reconcile.Pass[*korifiv1alpha1.CFRoute, route.Observed, route.Plan]{
		Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
		New:     func() *korifiv1alpha1.CFRoute { return &korifiv1alpha1.CFRoute{} },
		Observe: c.observe,
		Decide:  route.Decide,
		Act:     c.act,
		Report:  c.report,
	})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

func (c Controller) publishedKind() client.Object {
	if c.Publisher.UsesGateway() {
		return &gatewayv1.HTTPRoute{}
	}
	return &networkingv1.Ingress{}
}

func (c Controller) report(obj *korifiv1alpha1.CFRoute, seen route.Observed, plan route.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	status := &obj.Status
	status.ObservedGeneration, status.Destinations = obj.Generation, plan.Destinations
	status.CurrentStatus, status.Description = korifiv1alpha1.InvalidRoute, plan.Ready.Message
	status.FQDN, status.URI = "", ""
	if plan.IsValid {
		status.CurrentStatus = korifiv1alpha1.ValidRoute
		status.FQDN = route.FQDN(obj.Spec, seen.Domain)
		status.URI = status.FQDN + obj.Spec.Path
	}
	if refused != nil {
		plan.Ready = decision.Unknown(korifiv1alpha1.AddressPublishedReason, "the address could not be published: "+refused.Error())
	}
	reconcile.SetConditions(&status.Conditions, map[string]decision.Condition{korifiv1alpha1.ReadyCondition: plan.Ready}, obj.Generation, c.Clock)
	out := reconcile.FollowUp{Rule: plan.Ready.Reason}
	if !seen.StopEnd.IsZero() {
		// The expiry triggers no event.
		out.RequeueAfter = reconcile.DelayUntil(seen.StopEnd, c.Clock.Now())
	}
	return out
}

// routesOfSameDomains returns the routes of all domains that have the given domain's name. When such a domain is
// created or deleted, another one may become valid.
func (c Controller) routesOfSameDomains(ctx context.Context, obj client.Object) []ctrl.Request {
	all := c.routesBy(byDomain, keyOfObject)(ctx, obj)
	domain, isDomain := obj.(*korifiv1alpha1.CFDomain)
	var domains korifiv1alpha1.CFDomainList
	if err := c.client.List(ctx, &domains); err != nil || !isDomain {
		return all
	}
	for i := range domains.Items {
		if other := &domains.Items[i]; other.Spec.Name == domain.Spec.Name && other.UID != domain.UID {
			all = append(all, c.routesBy(byDomain, keyOfObject)(ctx, other)...)
		}
	}
	return all
}

// routesBy returns a function that maps an object to the routes with the value valueOf(obj) in a cache index.
func (c Controller) routesBy(field string, valueOf func(client.Object) string) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []ctrl.Request {
		var list korifiv1alpha1.CFRouteList
		if err := c.client.List(ctx, &list, client.MatchingFields{field: valueOf(obj)}); err != nil {
			return nil
		}
		var all []ctrl.Request
		for i := range list.Items {
			all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return all
	}
}
