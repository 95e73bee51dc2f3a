// SPDX-License-Identifier: Apache-2.0

package route

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
)

// servicePort is the port of Services, regardless of the port of the Pods.
const servicePort = 80

// dependentMeta returns the metadata of an object that a route owns, and that is deleted together with the route.
func dependentMeta(owner *korifiv1alpha1.CFRoute, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: owner.Namespace, Name: name, Labels: map[string]string{korifiv1alpha1.RouteGUIDLabel: owner.Name},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, korifiv1alpha1.CFRouteKind())},
	}
}

func serviceName(d korifiv1alpha1.RouteDestination) string { return "s-" + d.GUID }

// buildService returns a Service that selects the instances of a process in all revisions, because two revisions serve
// during a deployment. Unless the destination specifies a port, the Service refers to the port by name, because its
// number may differ between revisions.
func buildService(owner *korifiv1alpha1.CFRoute, b backend) *corev1.Service {
	port := intstr.FromString(lrp.PortName)
	if b.destination.Port > 0 {
		port = intstr.FromInt32(b.destination.Port)
	}
	meta := dependentMeta(owner, serviceName(b.destination))
	if b.appName != "" {
		meta.Labels[torporv1alpha1.AppNameLabel] = b.appName
	}
	return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Selector: map[string]string{
			korifiv1alpha1.AppGUIDLabel: b.destination.AppRef.Name, korifiv1alpha1.ProcessTypeLabel: b.destination.ProcessType,
		},
		Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: port}},
	}}
}

func pathOf(route *korifiv1alpha1.CFRoute) string { return cmp.Or(route.Spec.Path, "/") }

// buildHTTPRoute also sets the API server's defaults, so the result can be compared with the existing object.
func buildHTTPRoute(o Observed, backends []backend) *gatewayv1.HTTPRoute {
	rule := gatewayv1.HTTPRouteRule{Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{
		Type: new(gatewayv1.PathMatchPathPrefix), Value: new(pathOf(o.Route)),
	}}}}
	for _, b := range backends {
		rule.BackendRefs = append(rule.BackendRefs, gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{
				Group: new(gatewayv1.Group("")), Kind: new(gatewayv1.Kind("Service")), Name: gatewayv1.ObjectName(serviceName(b.destination)), Port: new(gatewayv1.PortNumber(servicePort)),
			},
			Weight: new(b.weight),
		}})
	}
	return &gatewayv1.HTTPRoute{ObjectMeta: dependentMeta(o.Route, o.Route.Name), Spec: gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{
			Group: new(gatewayv1.Group(gatewayv1.GroupName)), Kind: new(gatewayv1.Kind("Gateway")),
			Namespace: new(gatewayv1.Namespace(o.Publisher.GatewayNamespace)), Name: gatewayv1.ObjectName(o.Publisher.Gateway),
		}}},
		Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(FQDN(o.Route.Spec, o.Domain))},
		Rules:     []gatewayv1.HTTPRouteRule{rule},
	}}
}

// buildIngress returns an Ingress that sends all requests to the destination with the most desired instances, because
// an Ingress has no weights.
func buildIngress(o Observed, backends []backend) *networkingv1.Ingress {
	most := slices.MaxFunc(backends, func(a, b backend) int { return cmp.Compare(a.weight, b.weight) })
	ingress := &networkingv1.Ingress{ObjectMeta: dependentMeta(o.Route, o.Route.Name), Spec: networkingv1.IngressSpec{
		Rules: []networkingv1.IngressRule{{Host: FQDN(o.Route.Spec, o.Domain), IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{
				Path: pathOf(o.Route), PathType: new(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: serviceName(most.destination), Port: networkingv1.ServiceBackendPort{Number: servicePort},
				}},
			}},
		}}}},
	}}
	if o.Publisher.IngressClass != "" {
		ingress.Spec.IngressClassName = &o.Publisher.IngressClass
	}
	return ingress
}
