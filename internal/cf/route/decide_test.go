// SPDX-License-Identifier: Apache-2.0

package route

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

func observe(change func(*Observed)) Observed {
	destination := func(app string) korifiv1alpha1.RouteDestination {
		return korifiv1alpha1.RouteDestination{GUID: "to-" + app, AppRef: corev1.LocalObjectReference{Name: app}, ProcessType: korifiv1alpha1.WebProcess}
	}
	o := Observed{
		Route: &korifiv1alpha1.CFRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "route"}, Spec: korifiv1alpha1.CFRouteSpec{
			Host: "Shop", Path: "/cart", DomainRef: corev1.ObjectReference{Namespace: "root", Name: "domain"},
			Destinations: []korifiv1alpha1.RouteDestination{destination("blue"), destination("green")},
		}},
		Publisher: Publisher{GatewayNamespace: "infra", Gateway: "apps"},
		Domain:    &korifiv1alpha1.CFDomain{Spec: korifiv1alpha1.CFDomainSpec{Name: "apps.example.com"}},
		Apps:      map[string]*korifiv1alpha1.CFApp{}, Processes: map[string]*korifiv1alpha1.CFProcess{},
	}
	for app, instances := range map[string]int32{"blue": 3, "green": 1} {
		o.Apps[app] = &korifiv1alpha1.CFApp{Spec: korifiv1alpha1.CFAppSpec{DesiredState: korifiv1alpha1.StartedState}}
		o.Processes[ProcessKey(app, korifiv1alpha1.WebProcess)] = &korifiv1alpha1.CFProcess{Spec: korifiv1alpha1.CFProcessSpec{DesiredInstances: &instances}}
	}
	change(&o)
	return o
}

func TestOnlyAddressesOfTheSpacesOwnAreServed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Observed)
		reason string
	}{
		"a valid route: AddressPublished":                          {func(*Observed) {}, korifiv1alpha1.AddressPublishedReason},
		"a route without a host: AddressInvalid":                   {func(o *Observed) { o.Route.Spec.Host = "" }, korifiv1alpha1.AddressInvalidReason},
		"a wildcard host: AddressInvalid":                          {func(o *Observed) { o.Route.Spec.Host = "*" }, korifiv1alpha1.AddressInvalidReason},
		"a host with a dot: AddressInvalid":                        {func(o *Observed) { o.Route.Spec.Host = "a.b" }, korifiv1alpha1.AddressInvalidReason},
		"a path without a leading slash: AddressInvalid":           {func(o *Observed) { o.Route.Spec.Path = "cart" }, korifiv1alpha1.AddressInvalidReason},
		"a path with a query: AddressInvalid":                      {func(o *Observed) { o.Route.Spec.Path = "/cart?x" }, korifiv1alpha1.AddressInvalidReason},
		"the protocol tcp: AddressInvalid":                         {func(o *Observed) { o.Route.Spec.Protocol = "tcp" }, korifiv1alpha1.AddressInvalidReason},
		"a route without a domain: DomainMissing":                  {func(o *Observed) { o.Domain = nil }, korifiv1alpha1.DomainMissingReason},
		"a route with the address of an older route: AddressTaken": {func(o *Observed) { o.Holder = "other/route" }, korifiv1alpha1.AddressTakenReason},
		"a route without a destination: AddressReserved":           {func(o *Observed) { o.Route.Spec.Destinations = nil }, korifiv1alpha1.AddressReservedReason},
		"a destination whose app does not exist: AddressReserved":  {func(o *Observed) { o.Apps = nil }, korifiv1alpha1.AddressReservedReason},
	} {
		plan := Decide(observe(c.change))
		served := c.reason == korifiv1alpha1.AddressPublishedReason
		if plan.Ready.Reason != c.reason || (plan.HTTPRoute != nil) != served || (len(plan.Services) > 0) != served {
			t.Errorf("%s: expected %s, found %+v with %d Services", name, c.reason, plan.Ready, len(plan.Services))
		}
		if strings.Contains(plan.Ready.Message, "other/route") {
			t.Errorf("%s: expected nothing about another space's route, found %q", name, plan.Ready.Message)
		}
	}
}

func TestRequestsGoWhereInstancesAre(t *testing.T) {
	stop := func(app string) func(*Observed) {
		return func(o *Observed) { o.Apps[app].Spec.DesiredState = korifiv1alpha1.StoppedState }
	}
	for name, c := range map[string]struct {
		change      func(*Observed)
		blue, green int32
	}{
		"apps with three instances and one instance get the weights 3 and 1": {func(*Observed) {}, 3, 1},
		"a stopped app gets the weight 0":                                    {stop("green"), 3, 0},
		"stopped apps get equal weights":                                     {func(o *Observed) { stop("blue")(o); stop("green")(o) }, 1, 1},
	} {
		plan := Decide(observe(c.change))
		refs := plan.HTTPRoute.Spec.Rules[0].BackendRefs
		if len(refs) != 2 || *refs[0].Weight != c.blue || *refs[1].Weight != c.green || refs[0].Name != "s-to-blue" {
			t.Errorf("%s: expected %d and %d, found %+v", name, c.blue, c.green, refs)
		}
		if host := plan.HTTPRoute.Spec.Hostnames; len(host) != 1 || host[0] != "shop.apps.example.com" {
			t.Errorf("%s: expected shop.apps.example.com, found %v", name, host)
		}
	}
	plan := Decide(observe(func(o *Observed) { o.Publisher = Publisher{IngressClass: "inner"}; stop("blue")(o) }))
	if to := plan.Ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name; to != "s-to-green" || *plan.Ingress.Spec.IngressClassName != "inner" {
		t.Errorf("expected an Ingress of the class to the app that runs, found %s", to)
	}
}

func TestPublisherIsAGatewayOrIngresses(t *testing.T) {
	for flags, want := range map[[2]string]Publisher{
		{"", ""}: {}, {"", "inner"}: {IngressClass: "inner"}, {"infra/apps", ""}: {GatewayNamespace: "infra", Gateway: "apps"},
	} {
		if found, err := ParsePublisher(flags[0], flags[1]); err != nil || found != want {
			t.Errorf("%q: expected %+v, found %+v and %v", flags, want, found, err)
		}
	}
	for _, flags := range [][2]string{{"apps", ""}, {"/apps", ""}, {"infra/", ""}, {"a/b/c", ""}, {"infra/apps", "inner"}} {
		if found, err := ParsePublisher(flags[0], flags[1]); err == nil {
			t.Errorf("%q: expected an error, found %+v", flags, found)
		}
	}
}

func TestReadyFollowsTheGateway(t *testing.T) {
	says := func(parent string, statuses ...metav1.ConditionStatus) func(*Observed) {
		return func(o *Observed) {
			status := gatewayv1.RouteParentStatus{ParentRef: gatewayv1.ParentReference{Namespace: new(gatewayv1.Namespace("infra")), Name: gatewayv1.ObjectName(parent)}}
			for i, s := range statuses {
				status.Conditions = append(status.Conditions, metav1.Condition{
					Type: []string{"Accepted", "ResolvedRefs"}[i], Status: s, Reason: "Said", Message: "no listener", ObservedGeneration: 2,
				})
			}
			o.HTTPRoute = &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			o.HTTPRoute.Status.Parents = []gatewayv1.RouteParentStatus{status}
		}
	}
	for name, c := range map[string]struct {
		change func(*Observed)
		reason string
	}{
		"an HTTPRoute that is accepted and resolved: AddressServed":         {says("apps", metav1.ConditionTrue, metav1.ConditionTrue), korifiv1alpha1.AddressServedReason},
		"an HTTPRoute with conditions of another Gateway: AddressPublished": {says("others", metav1.ConditionTrue, metav1.ConditionTrue), korifiv1alpha1.AddressPublishedReason},
		"an HTTPRoute that is accepted but not resolved: AddressPublished":  {says("apps", metav1.ConditionTrue), korifiv1alpha1.AddressPublishedReason},
		"an HTTPRoute that the Gateway does not accept: GatewayRefused":     {says("apps", metav1.ConditionFalse), korifiv1alpha1.GatewayRefusedReason},
		"an HTTPRoute with conditions of an earlier generation: AddressPublished": {func(o *Observed) {
			says("apps", metav1.ConditionTrue, metav1.ConditionTrue)(o)
			o.HTTPRoute.Generation = 3
		}, korifiv1alpha1.AddressPublishedReason},
		"an Ingress whose status has an address: AddressServed": {func(o *Observed) {
			o.Publisher = Publisher{}
			o.Ingress = &networkingv1.Ingress{Status: networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}}}}
		}, korifiv1alpha1.AddressServedReason},
		"an Ingress whose status has no address yet: AddressPublished": {func(o *Observed) { o.Publisher = Publisher{} }, korifiv1alpha1.AddressPublishedReason},
	} {
		if plan := Decide(observe(c.change)); plan.Ready.Reason != c.reason {
			t.Errorf("%s: expected %s, found %+v", name, c.reason, plan.Ready)
		}
	}
}

func TestHostIsForTheSpaceOfItsOldestRoute(t *testing.T) {
	at := func(second int64, space, path string) *korifiv1alpha1.CFRoute {
		return &korifiv1alpha1.CFRoute{
			ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: space + path, CreationTimestamp: metav1.Unix(second, 0)}, Spec: korifiv1alpha1.CFRouteSpec{Path: path},
		}
	}
	first, below, own, again := at(1, "a", ""), at(2, "b", "/login"), at(3, "a", "/login"), at(4, "a", "/login")
	ofHost := []*korifiv1alpha1.CFRoute{again, own, below, first}
	for obj, want := range map[*korifiv1alpha1.CFRoute]*korifiv1alpha1.CFRoute{first: nil, below: first, own: nil, again: own} {
		if found := FindHolder(obj, ofHost); found != want {
			t.Errorf("%s/%s: expected %v, found %v", obj.Namespace, obj.Name, want, found)
		}
	}
}
