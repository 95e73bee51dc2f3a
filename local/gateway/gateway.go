// SPDX-License-Identifier: Apache-2.0

// Package gateway is a small data plane of the Gateway API for tests and demos, see
// docs/adr/0017-a-data-plane-for-tests.md. It distributes requests to ready endpoints by the weights in HTTPRoutes,
// keeps connections open as real gateways do, and never retries a request.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/local/loopback"
)

const (
	// controllerName is the controller name in the status of accepted HTTPRoutes.
	controllerName = "example.com/test-gateway"
	// acceptInterval is how often to check for HTTPRoutes that are not accepted yet.
	acceptInterval = 100 * time.Millisecond
	requestLimit   = 5 * time.Second
	idleConnsLimit = 10
)

// Config is the configuration of a gateway.
type Config struct {
	// Kubeconfig is the path of a kubeconfig with permission to list HTTPRoutes and EndpointSlices, and to write the
	// status of HTTPRoutes.
	Kubeconfig string
	// Gateway is the namespace and name of the Gateway whose routes are served, such as infra/apps. The Gateway need
	// not exist.
	Gateway string
	// Address is the address to listen on.
	Address string
	// PodNetwork is the folder with the sockets of hollow nodes' Pods; other Pods are dialled at their address.
	PodNetwork string
}

type dataPlane struct {
	config Config
	// resource is the API resource of HTTPRoutes.
	resource  schema.GroupVersionResource
	routes    cache.GenericLister
	endpoints discoverylisters.EndpointSliceLister
	client    dynamic.Interface
	transport *http.Transport
	// requests counts requests, so that they are sent to the endpoints in turn.
	requests atomic.Uint32
}

// RunGateway serves requests until ctx ends, and calls ready with its address once it has listed all routes and
// endpoints.
func RunGateway(ctx context.Context, c Config, ready func(address string)) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	resource := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	routes, endpoints := dynamicinformer.NewDynamicSharedInformerFactory(client, 0), informers.NewSharedInformerFactory(typed, 0)
	d := &dataPlane{config: c, resource: resource, client: client, routes: routes.ForResource(resource).Lister(), endpoints: endpoints.Discovery().V1().EndpointSlices().Lister()}
	d.transport = &http.Transport{MaxIdleConnsPerHost: idleConnsLimit, DialContext: d.dialPod}
	defer d.transport.CloseIdleConnections()
	routes.Start(ctx.Done())
	endpoints.Start(ctx.Done())
	routes.WaitForCacheSync(ctx.Done())
	endpoints.WaitForCacheSync(ctx.Done())
	listener, err := loopback.Listen(ctx, c.Address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d, ReadHeaderTimeout: requestLimit}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go wait.UntilWithContext(ctx, d.acceptRoutes, acceptInterval)
	ready(listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// dialPod dials a hollow node's Pod through its socket, and other Pods at their address.
func (d *dataPlane) dialPod(ctx context.Context, network, address string) (net.Conn, error) {
	if host, port, err := net.SplitHostPort(address); err == nil && d.config.PodNetwork != "" {
		if folder := filepath.Join(d.config.PodNetwork, host); isFolder(folder) {
			network, address = "unix", filepath.Join(folder, port)
		}
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// route contains the fields of an HTTPRoute that the gateway uses.
type route struct {
	Spec struct {
		ParentRefs []struct{ Namespace, Name string }
		Hostnames  []string
		Rules      []struct {
			Matches     []struct{ Path struct{ Value string } }
			BackendRefs []backendRef
		}
	}
	Status struct {
		Parents []struct {
			ControllerName string
			Conditions     []struct{ ObservedGeneration int64 }
		}
	}
	object *unstructured.Unstructured
}

type backendRef struct {
	Name   string
	Weight int64
}

// listRoutes lists the routes of the Gateway.
func (d *dataPlane) listRoutes() (found []route) {
	all, _ := d.routes.List(labels.Everything()) // An informer's lister returns no error.
	for _, obj := range all {
		u, isUnstructured := obj.(*unstructured.Unstructured)
		if !isUnstructured {
			continue
		}
		r := route{object: u}
		if raw, err := u.MarshalJSON(); err != nil || json.Unmarshal(raw, &r) != nil {
			continue
		}
		for _, parent := range r.Spec.ParentRefs {
			if parent.Namespace+"/"+parent.Name == d.config.Gateway {
				found = append(found, r)
			}
		}
	}
	return found
}

// acceptRoutes sets the conditions Accepted and ResolvedRefs in the status of each HTTPRoute that is not accepted yet.
// The next call retries after an error.
func (d *dataPlane) acceptRoutes(ctx context.Context) {
	for _, r := range d.listRoutes() {
		generation := r.object.GetGeneration()
		if len(r.Status.Parents) > 0 && r.Status.Parents[0].ControllerName == controllerName && r.Status.Parents[0].Conditions[0].ObservedGeneration == generation {
			continue
		}
		var conditions []any
		for _, kind := range []string{"Accepted", "ResolvedRefs"} {
			conditions = append(conditions, map[string]any{
				"type": kind, "status": "True", "reason": kind, "message": "", "observedGeneration": generation,
				"lastTransitionTime": r.object.GetCreationTimestamp().UTC().Format(time.RFC3339),
			})
		}
		after := r.object.DeepCopy()
		refs, _, _ := unstructured.NestedSlice(after.Object, "spec", "parentRefs")
		after.Object["status"] = map[string]any{"parents": []any{map[string]any{"parentRef": refs[0], "controllerName": controllerName, "conditions": conditions}}}
		_, _ = d.client.Resource(d.resource).Namespace(after.GetNamespace()).UpdateStatus(ctx, after, metav1.UpdateOptions{})
	}
}

// ServeHTTP implements http.Handler.
func (d *dataPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namespace, refs := d.findBackends(r)
	if refs == nil {
		http.Error(w, "no route for this address", http.StatusNotFound)
		return
	}
	turn := d.requests.Add(1)
	endpoints := d.listEndpoints(namespace, chooseBackend(refs, turn))
	if len(endpoints) == 0 {
		http.Error(w, "no ready instance", http.StatusServiceUnavailable)
		return
	}
	to := &url.URL{Scheme: "http", Host: endpoints[int(turn)%len(endpoints)]}
	(&httputil.ReverseProxy{Transport: d.transport, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to); p.SetXForwarded() }}).ServeHTTP(w, r)
}

// findBackends returns the backends of the route whose path is the longest match for a request.
func (d *dataPlane) findBackends(r *http.Request) (namespace string, refs []backendRef) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	longest := -1
	for _, route := range d.listRoutes() {
		rule := route.Spec.Rules[0]
		path := strings.TrimSuffix(rule.Matches[0].Path.Value, "/")
		isBelow := r.URL.Path == path || strings.HasPrefix(r.URL.Path, path+"/")
		if slices.Contains(route.Spec.Hostnames, host) && isBelow && len(path) > longest {
			longest, namespace, refs = len(path), route.object.GetNamespace(), rule.BackendRefs
		}
	}
	return namespace, refs
}

func chooseBackend(refs []backendRef, turn uint32) string {
	var total int64
	for _, ref := range refs {
		total += ref.Weight
	}
	at := int64(turn) % max(total, 1)
	for _, ref := range refs {
		if at -= ref.Weight; at < 0 {
			return ref.Name
		}
	}
	return refs[0].Name
}

// listEndpoints returns the ready endpoints of a Service as host:port.
func (d *dataPlane) listEndpoints(namespace, service string) (found []string) {
	slices, _ := d.endpoints.EndpointSlices(namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service}))
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			if len(slice.Ports) > 0 && slice.Ports[0].Port != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				found = append(found, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*slice.Ports[0].Port))))
			}
		}
	}
	return found
}
