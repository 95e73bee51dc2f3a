// SPDX-License-Identifier: Apache-2.0

// Package route decides where the requests for a CFRoute are sent, and which objects publish the route. It is pure;
// package controller observes and acts.
package route

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Publisher describes the component that sends external requests to Services.
type Publisher struct {
	// GatewayNamespace and Gateway identify a Gateway, for which routes become HTTPRoutes. Without a Gateway, routes
	// become Ingresses.
	GatewayNamespace, Gateway string
	// IngressClass is the class of the Ingresses. If it is empty, the cluster's default class is used.
	IngressClass string
}

// ParsePublisher parses the Gateway, as NAMESPACE/NAME, or the class of Ingresses.
func ParsePublisher(gateway, ingressClass string) (Publisher, error) {
	if gateway == "" {
		return Publisher{IngressClass: ingressClass}, nil
	}
	namespace, name, ok := strings.Cut(gateway, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") || ingressClass != "" {
		return Publisher{}, fmt.Errorf("--route-gateway: expected NAMESPACE/NAME without --route-ingress-class, found %q and %q", gateway, ingressClass)
	}
	return Publisher{GatewayNamespace: namespace, Gateway: name}, nil
}

// UsesGateway reports whether routes become HTTPRoutes.
func (p Publisher) UsesGateway() bool { return p.Gateway != "" }

// Observed is a route with the objects that determine where its requests are sent.
type Observed struct {
	Route     *korifiv1alpha1.CFRoute
	Publisher Publisher
	// Domain is the domain of the route. It is nil if it does not exist, or if an older domain has the same name.
	Domain *korifiv1alpha1.CFDomain
	// Holder is the older route that has reserved the host or the same host and path, as NAMESPACE/NAME. It is empty if
	// there is none.
	Holder string
	// Apps contains the existing apps of the destinations by name. Processes contains their processes by app and type.
	Apps      map[string]*korifiv1alpha1.CFApp
	Processes map[string]*korifiv1alpha1.CFProcess
	// StopEnd is the earliest time at which a Slumber's stop of one of the apps expires. It is zero if none expires.
	StopEnd time.Time
	// Services, HTTPRoute and Ingress are the existing objects of the route.
	Services  []corev1.Service
	HTTPRoute *gatewayv1.HTTPRoute
	Ingress   *networkingv1.Ingress
}

// Plan is the desired set of the route's objects. A reconciliation may write several of them, and each write can be
// repeated.
type Plan struct {
	// Services contains one Service for each destination. Other Services of the route are deleted.
	Services []*corev1.Service
	// HTTPRoute or Ingress sends the requests for the route to the Services. Both are nil if there are no Services.
	HTTPRoute *gatewayv1.HTTPRoute
	Ingress   *networkingv1.Ingress
	// Destinations are the destinations whose app and process exist.
	Destinations []korifiv1alpha1.RouteDestination
	IsValid      bool
	Ready        decision.Condition
}

// ProcessKey returns the key of a process in Observed.Processes.
func ProcessKey(app, processType string) string { return app + "/" + processType }

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	if problem, isWrong := findProblem(o); isWrong {
		return Plan{Ready: problem}
	}
	plan := Plan{IsValid: true}
	backends := listBackends(o)
	for _, b := range backends {
		plan.Services = append(plan.Services, buildService(o.Route, b))
		plan.Destinations = append(plan.Destinations, b.destination)
	}
	switch {
	case len(backends) == 0:
		plan.Ready = decision.True(korifiv1alpha1.AddressReservedReason, "no app is mapped to the address; map an app")
	case o.Publisher.UsesGateway():
		plan.HTTPRoute = buildHTTPRoute(o, backends)
		plan.Ready = judgeHTTPRoute(o)
	default:
		plan.Ingress = buildIngress(o, backends)
		plan.Ready = judgeIngress(o)
	}
	return plan
}

// hostPattern matches a single DNS label. It does not match a wildcard.
var hostPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// pathPattern excludes the characters that end a path, and the characters that gateways interpret as patterns.
var pathPattern = regexp.MustCompile(`^(/[-A-Za-z0-9._~]+)+$`)

// CheckAddress returns a message about an invalid protocol, host or path. It returns "" if all are valid.
func CheckAddress(spec korifiv1alpha1.CFRouteSpec) string {
	switch {
	case spec.Protocol != "" && spec.Protocol != korifiv1alpha1.HTTPRouteProtocol:
		return fmt.Sprintf("expected the protocol http, found %s; Torpor supports no other protocol", spec.Protocol)
	case !hostPattern.MatchString(HostOf(spec)):
		return fmt.Sprintf("expected a host of letters, digits and dashes, found %q; set a host such as shop", spec.Host)
	case spec.Path != "" && !pathPattern.MatchString(spec.Path):
		return fmt.Sprintf("expected a path such as /cart, found %q; start the path with a slash, and do not end it with one",
			spec.Path)
	default:
		return ""
	}
}

// HostOf returns the host in lower case, because host names are case-insensitive.
func HostOf(spec korifiv1alpha1.CFRouteSpec) string { return strings.ToLower(spec.Host) }

// HostKey returns a key that is the same for all routes with the same host and domain.
func HostKey(spec korifiv1alpha1.CFRouteSpec) string {
	return spec.DomainRef.Namespace + "/" + spec.DomainRef.Name + "/" + HostOf(spec)
}

// FindHolder returns the older route with the same host that prevents a route from being published, or nil. As in Cloud
// Controller, the space with a host's oldest route owns the host with all its paths. Requests are sent to the route
// with the longest matching path. Without this rule, another space could use a longer path to receive requests for the
// first space, including passwords.
func FindHolder(obj *korifiv1alpha1.CFRoute, ofHost []*korifiv1alpha1.CFRoute) *korifiv1alpha1.CFRoute {
	holder := obj
	for _, other := range ofHost {
		if revision.CompareByAge(other, holder) < 0 {
			holder = other
		}
	}
	if holder.Namespace != obj.Namespace {
		return holder
	}
	for _, other := range ofHost {
		if other.Namespace == obj.Namespace && other.Spec.Path == obj.Spec.Path && revision.CompareByAge(other, obj) < 0 {
			return other
		}
	}
	return nil
}

// FQDN returns the fully qualified domain name of a route.
func FQDN(spec korifiv1alpha1.CFRouteSpec, domain *korifiv1alpha1.CFDomain) string {
	return HostOf(spec) + "." + domain.Spec.Name
}

func findProblem(o Observed) (decision.Condition, bool) {
	spec := o.Route.Spec
	if wrong := CheckAddress(spec); wrong != "" {
		return decision.False(korifiv1alpha1.AddressInvalidReason, wrong), true
	}
	if o.Domain == nil {
		return decision.False(korifiv1alpha1.DomainMissingReason, fmt.Sprintf(
			"expected the CFDomain %s/%s to be the oldest with its domain name, found no such CFDomain or an older one; ask the platform team for the domain, or choose another domain",
			spec.DomainRef.Namespace, spec.DomainRef.Name)), true
	}
	if o.Holder != "" {
		return decision.False(korifiv1alpha1.AddressTakenReason,
			"expected an address that no other route uses, and a host that no other space uses, found an older route with that address or host; choose another host or path"), true
	}
	return decision.Condition{}, false
}

// backend is a destination whose app and process exist.
type backend struct {
	destination korifiv1alpha1.RouteDestination
	// appName is the app's name as a label value.
	appName string
	weight  int32
}

// listBackends returns the destinations whose app and process exist, weighted by their desired instances. A stopped app
// receives no requests while another destination runs.
func listBackends(o Observed) []backend {
	var all []backend
	var total int32
	for _, d := range o.Route.Spec.Destinations {
		app, p := o.Apps[d.AppRef.Name], o.Processes[ProcessKey(d.AppRef.Name, d.ProcessType)]
		if app == nil || p == nil {
			continue
		}
		b := backend{destination: d, appName: revision.AppNameLabel(app.Spec.DisplayName)}
		if app.Spec.DesiredState == korifiv1alpha1.StartedState {
			b.weight = process.DesiredInstances(p)
		}
		total += b.weight
		all = append(all, b)
	}
	if total == 0 {
		for i := range all {
			all[i].weight = 1
		}
	}
	return all
}

func judgeHTTPRoute(o Observed) decision.Condition {
	published := decision.Unknown(korifiv1alpha1.AddressPublishedReason, fmt.Sprintf(
		"the Gateway %s/%s has not reported yet whether it serves the address", o.Publisher.GatewayNamespace, o.Publisher.Gateway))
	if o.HTTPRoute == nil {
		return published
	}
	i := slices.IndexFunc(o.HTTPRoute.Status.Parents, func(p gatewayv1.RouteParentStatus) bool {
		return string(p.ParentRef.Name) == o.Publisher.Gateway && p.ParentRef.Namespace != nil && string(*p.ParentRef.Namespace) == o.Publisher.GatewayNamespace
	})
	if i < 0 {
		return published
	}
	conditions := o.HTTPRoute.Status.Parents[i].Conditions
	for _, kind := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
		c := meta.FindStatusCondition(conditions, string(kind))
		if c == nil || c.ObservedGeneration < o.HTTPRoute.Generation || c.Status == metav1.ConditionUnknown {
			return published
		}
		if c.Status == metav1.ConditionFalse {
			return decision.False(korifiv1alpha1.GatewayRefusedReason, fmt.Sprintf("expected the Gateway %s/%s to serve the address, found %s: %s; ask the platform team",
				o.Publisher.GatewayNamespace, o.Publisher.Gateway, c.Reason, c.Message))
		}
	}
	return decision.True(korifiv1alpha1.AddressServedReason, "the Gateway serves the address")
}

func judgeIngress(o Observed) decision.Condition {
	if o.Ingress != nil && len(o.Ingress.Status.LoadBalancer.Ingress) > 0 {
		return decision.True(korifiv1alpha1.AddressServedReason, "the Ingress has an address")
	}
	return decision.Unknown(korifiv1alpha1.AddressPublishedReason,
		"the Ingress has no address yet; the controller of its class must set one")
}
