// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// waitTimeout limits every single wait. No wait should take more than a tenth of it.
const waitTimeout = 2 * time.Minute

// benchKind returns the kind with number i. Ten kinds share an API group.
func benchKind(i int) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: fmt.Sprintf("g%d.bench.example.com", i/10), Version: "v1", Kind: fmt.Sprintf("Widget%d", i)}
}

func newObject(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	if name != "" {
		obj.SetNamespace(metav1.NamespaceDefault)
		obj.SetName(name)
	}
	return obj
}

func newCRD(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	return testenv.NewCRD(kind, strings.ToLower(kind.Kind)+"s", apiextensionsv1.NamespaceScoped)
}

// adminClient changes objects in the API server. Its requests are not counted. Its methods panic with a trialError.
type adminClient struct {
	client    client.WithWatch
	discovery *discovery.DiscoveryClient
}

func newAdminClient(cfg *rest.Config) adminClient {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = -1, -1
	// client-go shares connections between equal configurations. A separate dialer results in a separate connection.
	cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	scheme := runtime.NewScheme()
	check(apiextensionsv1.AddToScheme(scheme), "create the scheme of CRDs")
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	check(err, "create the client that installs CRDs")
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	check(err, "create the client of discovery")
	return adminClient{c, d}
}

func (a adminClient) installCRD(ctx context.Context, kind schema.GroupVersionKind) {
	check(a.client.Create(ctx, newCRD(kind)), "install the CRD of "+kind.Kind)
}

func (a adminClient) uninstallCRD(ctx context.Context, kind schema.GroupVersionKind) {
	check(a.client.Delete(ctx, newCRD(kind)), "uninstall the CRD of "+kind.Kind)
}

// createObject creates an object. It retries, because a new kind may not accept objects yet.
func (a adminClient) createObject(ctx context.Context, kind schema.GroupVersionKind, name string) {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, waitTimeout, true, func(ctx context.Context) (bool, error) {
		last = a.client.Create(ctx, newObject(kind, name))
		return last == nil, nil
	})
	check(err, fmt.Sprintf("create %s %s: %v", kind.Kind, name, last))
}

func (a adminClient) deleteObject(ctx context.Context, kind schema.GroupVersionKind, name string) {
	check(a.client.Delete(ctx, newObject(kind, name)), "delete "+name)
}

// waitUntilServed queries discovery until the kind is served, with pauses of 2 ms, 4 ms, 8 ms and so on.
func (a adminClient) waitUntilServed(ctx context.Context, kind schema.GroupVersionKind) {
	backoff := wait.Backoff{Duration: 2 * time.Millisecond, Factor: 2, Steps: 20, Cap: time.Second}
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		list, err := a.discovery.ServerResourcesForGroupVersionWithContext(ctx, kind.GroupVersion().String())
		return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind }), nil
	})
	check(err, "wait until "+kind.Kind+" is served")
}

// crdHistory records the times at which a watch of CRDs observed that each CRD was established and deleted.
type crdHistory struct {
	mu                sync.Mutex
	established, gone map[string]time.Time
	err               error // err is the reason why there will be no more events
}

// watchCRDs records a history until ctx is cancelled. The history contains everything that happens after watchCRDs has
// returned.
func (a adminClient) watchCRDs(ctx context.Context) *crdHistory {
	var list apiextensionsv1.CustomResourceDefinitionList
	check(a.client.List(ctx, &list), "list CRDs")
	events, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return a.client.Watch(ctx, &apiextensionsv1.CustomResourceDefinitionList{}, &client.ListOptions{Raw: &o})
		},
	})
	check(err, "watch CRDs")
	h := &crdHistory{established: map[string]time.Time{}, gone: map[string]time.Time{}}
	go func() {
		for event := range events.ResultChan() {
			h.noteEvent(event, time.Now())
		}
	}()
	return h
}

func (h *crdHistory) noteEvent(event watch.Event, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
	switch {
	case event.Type == watch.Error:
		h.err = k8serrors.FromObject(event.Object)
	case ok && event.Type == watch.Deleted:
		h.gone[crd.Name] = at
		delete(h.established, crd.Name)
	case ok && h.established[crd.Name].IsZero() && testenv.IsEstablished(crd):
		h.established[crd.Name] = at
		delete(h.gone, crd.Name)
	}
}

// waitFor returns the time for the kind's CRD in one of the history's maps, as soon as it exists.
func (h *crdHistory) waitFor(ctx context.Context, moments map[string]time.Time, kind schema.GroupVersionKind) (at time.Time) {
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, waitTimeout, true, func(context.Context) (bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		at = moments[newCRD(kind).Name]
		return !at.IsZero(), h.err
	})
	check(err, "wait for the CRD of "+kind.Kind)
	return at
}
