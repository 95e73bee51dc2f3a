// SPDX-License-Identifier: Apache-2.0

// Package gateway is a small data plane of the Gateway API for tests, see docs/adr/0017-a-data-plane-for-tests.md. It sends requests
// to ready endpoints by the weights of HTTPRoutes, keeps connections as real gateways do, and never tries a request again.
package gateway

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/torpor-dev/torpor/internal/testenv"
)

// controllerName is who accepts HTTPRoutes.
const controllerName = "example.com/test-gateway"

// acceptInterval is how often HTTPRoutes are looked at that nobody has accepted.
const acceptInterval = 100 * time.Millisecond

type dataPlane struct {
	cache     cache.Cache
	client    client.Client
	gateway   client.ObjectKey
	transport *http.Transport
	// requests counts them, so that each goes to the next in turn.
	requests atomic.Uint32
}

// Start serves the HTTPRoutes of a Gateway until the test ends, and returns the address.
func Start(t testing.TB, cfg *rest.Config, gateway client.ObjectKey) (address string) {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{gatewayv1.Install, discoveryv1.AddToScheme} {
		testenv.ExpectNoError(t, add(s))
	}
	d := &dataPlane{gateway: gateway, transport: &http.Transport{MaxIdleConnsPerHost: 10}}
	var err error
	d.cache, err = cache.New(cfg, cache.Options{Scheme: s})
	testenv.ExpectNoError(t, err)
	d.client, err = client.New(cfg, client.Options{Scheme: s})
	testenv.ExpectNoError(t, err)
	testenv.RunInBackground(t, "the cache of the gateway", d.cache.Start)
	for _, kind := range []client.Object{&gatewayv1.HTTPRoute{}, &discoveryv1.EndpointSlice{}} {
		_, err := d.cache.GetInformer(t.Context(), kind)
		testenv.ExpectNoError(t, err)
	}
	testenv.RunInBackground(t, "the gateway", func(ctx context.Context) error {
		wait.UntilWithContext(ctx, d.acceptRoutes, acceptInterval)
		return nil
	})
	server := httptest.NewServer(d)
	t.Cleanup(func() { server.Close(); d.transport.CloseIdleConnections() })
	return server.Listener.Addr().String()
}

// acceptRoutes says of each HTTPRoute of the Gateway that it is served; what fails is tried again.
func (d *dataPlane) acceptRoutes(ctx context.Context) {
	for _, route := range d.listRoutes(ctx) {
		if slices.ContainsFunc(route.Status.Parents, func(p gatewayv1.RouteParentStatus) bool {
			return p.ControllerName == controllerName && p.Conditions[0].ObservedGeneration == route.Generation
		}) {
			continue
		}
		parent := gatewayv1.RouteParentStatus{ParentRef: route.Spec.ParentRefs[0], ControllerName: controllerName}
		for _, kind := range []string{string(gatewayv1.RouteConditionAccepted), string(gatewayv1.RouteConditionResolvedRefs)} {
			parent.Conditions = append(parent.Conditions, metav1.Condition{
				Type: kind, Status: metav1.ConditionTrue, Reason: kind, ObservedGeneration: route.Generation, LastTransitionTime: route.CreationTimestamp,
			})
		}
		route.Status.Parents = []gatewayv1.RouteParentStatus{parent}
		_ = d.client.SubResource("status").Update(ctx, &route)
	}
}

func (d *dataPlane) listRoutes(ctx context.Context) []gatewayv1.HTTPRoute {
	var list gatewayv1.HTTPRouteList
	if d.cache.List(ctx, &list) != nil {
		return nil
	}
	return slices.DeleteFunc(list.Items, func(r gatewayv1.HTTPRoute) bool {
		return !slices.ContainsFunc(r.Spec.ParentRefs, func(p gatewayv1.ParentReference) bool {
			return string(p.Name) == d.gateway.Name && p.Namespace != nil && string(*p.Namespace) == d.gateway.Namespace
		})
	})
}

// ServeHTTP implements http.Handler.
func (d *dataPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namespace, refs := d.findBackends(r)
	if refs == nil {
		http.Error(w, "no route has this address", http.StatusNotFound)
		return
	}
	turn := d.requests.Add(1)
	endpoints := d.listEndpoints(r.Context(), namespace, chooseBackend(refs, turn))
	if len(endpoints) == 0 {
		http.Error(w, "no instance is ready", http.StatusServiceUnavailable)
		return
	}
	to := &url.URL{Scheme: "http", Host: endpoints[int(turn)%len(endpoints)]}
	(&httputil.ReverseProxy{Transport: d.transport, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to); p.SetXForwarded() }}).ServeHTTP(w, r)
}

// findBackends returns those of the longest path that a request matches.
func (d *dataPlane) findBackends(r *http.Request) (namespace string, refs []gatewayv1.HTTPBackendRef) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	longest := -1
	for _, route := range d.listRoutes(r.Context()) {
		rule := route.Spec.Rules[0]
		path := strings.TrimSuffix(*rule.Matches[0].Path.Value, "/")
		isBelow := r.URL.Path == path || strings.HasPrefix(r.URL.Path, path+"/")
		if slices.Contains(route.Spec.Hostnames, gatewayv1.Hostname(host)) && isBelow && len(path) > longest {
			longest, namespace, refs = len(path), route.Namespace, rule.BackendRefs
		}
	}
	return namespace, refs
}

func chooseBackend(refs []gatewayv1.HTTPBackendRef, turn uint32) string {
	var total int64
	for _, ref := range refs {
		total += int64(*ref.Weight)
	}
	at := int64(turn) % max(total, 1)
	for _, ref := range refs {
		if at -= int64(*ref.Weight); at < 0 {
			return string(ref.Name)
		}
	}
	return string(refs[0].Name)
}

// listEndpoints returns the ready endpoints of a Service as host:port.
func (d *dataPlane) listEndpoints(ctx context.Context, namespace, service string) []string {
	var list discoveryv1.EndpointSliceList
	if d.cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}) != nil {
		return nil
	}
	var all []string
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if len(slice.Ports) > 0 && slice.Ports[0].Port != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				all = append(all, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*slice.Ports[0].Port))))
			}
		}
	}
	return all
}
