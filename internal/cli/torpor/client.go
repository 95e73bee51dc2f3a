// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	// pageSize is the number of objects per page of a list.
	pageSize = 500
	// maxObjects limits the objects of a kind. A longer list is of no use in a terminal.
	maxObjects = 50_000
)

// kubeClient is a client of the API server, with the namespace of the command.
type kubeClient struct {
	client.WithWatch
	discovery *discovery.DiscoveryClient
	namespace string
	config    *rest.Config
	mapper    *meta.DefaultRESTMapper
	// foreign caches the kinds of StopAdapters; it is valid if isAsked is true.
	foreign []kinds.Kind
	isAsked bool
}

func newKubeClient(cfg *rest.Config, namespace string) (*kubeClient, error) {
	known := runtime.NewScheme()
	// The kinds below are mapped without discovery, which would cost a dozen requests.
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range kinds.ListBuiltIn() {
		if err := k.AddToScheme(known); err != nil {
			return nil, fmt.Errorf("register %s: %w", k.GVK().Kind, err)
		}
		mapper.Add(k.GVK(), meta.RESTScopeNamespace)
	}
	// Previews of schedules read kinds of torpor.dev, and the command page reads the other kinds.
	for _, add := range []func(*runtime.Scheme) error{torporv1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, authenticationv1.AddToScheme} {
		if err := add(known); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	mapper.Add(torporv1alpha1.SlumberKind(), meta.RESTScopeNamespace)
	mapper.Add(torporv1alpha1.ClusterSlumberKind(), meta.RESTScopeRoot)
	mapper.Add(torporv1alpha1.StopAdapterKind(), meta.RESTScopeRoot)
	mapper.Add(namespaceKind(), meta.RESTScopeRoot)
	for _, one := range []string{"Pod", "ServiceAccount"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(one), meta.RESTScopeNamespace)
	}
	if err := connection.AddLease(known, mapper); err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: known, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("create discovery client: %w", err)
	}
	return &kubeClient{WithWatch: c, discovery: d, namespace: namespace, config: cfg, mapper: mapper}, nil
}

// target is an object that the user named or selected, and the part of it that the verb changes.
type target struct {
	kind                  kinds.Kind
	namespace, name, part string
	// shownName is the name in messages, which may be the display name. If it is empty, messages contain name.
	shownName string
}

func (t target) String() string {
	if len(t.kind.PartNames()) > 1 {
		return t.displayName() + " " + t.part
	}
	return t.displayName()
}

// findRow returns the row of the target's part.
func (t target) findRow(obj client.Object) stopRow {
	return stopRow{Row: t.kind.FindRow(obj, t.part)}
}

// key returns the key of the target's object, without a part.
func (t target) key() rowKey {
	return rowKey{kind: t.kind.GVK().GroupKind(), namespace: t.namespace, name: t.name}
}

// matchKinds returns the kinds with this name. The first name of a kind is unique; several kinds of StopAdapters may
// share other names.
func matchKinds(known []kinds.Kind, text string) (found []kinds.Kind) {
	for _, k := range known {
		switch {
		case k.Names()[0] == strings.ToLower(text):
			return []kinds.Kind{k}
		case k.HasName(text):
			found = append(found, k)
		}
	}
	return found
}

// chooseKind returns the only kind that was found for a name, or an error; the error quotes argument, the
// command-line argument that contains the name.
func chooseKind(known, found []kinds.Kind, name, argument string) (kinds.Kind, error) {
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return kinds.Kind{}, unknownKindError(known, argument)
	default:
		return kinds.Kind{}, exit.WrongUsage("expected one kind, found that %q may be any of %s; use one of these names",
			name, listKindNames(found))
	}
}

func listKindNames(known []kinds.Kind) string {
	return strings.Join(kinds.Registry(known).Names(), ", ")
}

// listWorkloads returns the workloads in the plural, without a conjunction, so that a text can add other kinds.
func listWorkloads() string { return strings.Join(kinds.ListWorkloads().Plurals(), ", ") }

// getRows reads one object and returns its rows.
func (kube *kubeClient) getRows(ctx context.Context, t target) ([]stopRow, error) {
	obj, err := kube.getObject(ctx, t)
	if err != nil {
		return nil, err
	}
	return describeRows(t.kind, obj), nil
}

// errForbidden reports that the user may not list the objects of a kind.
var errForbidden = errors.New("forbidden")

// listRows reads the objects of a kind. If the API server does not serve the kind, isServed is false and there are no
// rows.
func (kube *kubeClient) listRows(ctx context.Context, k kinds.Kind, selector labels.Selector) (rows []stopRow, isServed bool, err error) {
	isServed, err = kube.eachObject(ctx, k, selector, func(obj client.Object) { rows = append(rows, describeRows(k, obj)...) })
	return rows, isServed, err
}

// eachObject calls visit for each object of a kind.
func (kube *kubeClient) eachObject(ctx context.Context, k kinds.Kind, selector labels.Selector, visit func(client.Object)) (isServed bool, err error) {
	err = eachItem(ctx, kube, k.NewList(), visit, client.InNamespace(kube.namespace), client.MatchingLabelsSelector{Selector: selector})
	switch {
	case connection.IsKindNotServed(err):
		return false, nil
	case k8serrors.IsForbidden(err):
		// The API server checks permissions before it looks up the kind, so a user without permissions also gets
		// Forbidden for kinds that do not exist.
		if served, servedErr := kube.isServed(ctx, k); servedErr == nil && !served {
			return false, nil
		}
		return true, errForbidden
	case err != nil:
		return true, fmt.Errorf("list the %ss: %w", k.GVK().Kind, err)
	default:
		return true, nil
	}
}

// eachItem calls visit for each object of a list, page by page. The list that is passed in is empty and only
// determines the kind.
func eachItem[T client.Object](ctx context.Context, kube client.Client, list client.ObjectList, visit func(T), options ...client.ListOption) error {
	read := 0
	for next := ""; ; {
		page, _ := list.DeepCopyObject().(client.ObjectList)
		if err := kube.List(ctx, page, slices.Concat(options, []client.ListOption{client.Limit(pageSize), client.Continue(next)})...); err != nil {
			return err
		}
		if err := meta.EachListItem(page, func(item runtime.Object) error {
			read++
			visit(item.(T))
			return nil
		}); err != nil {
			return fmt.Errorf("extract the items of the list: %w", err)
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
		if read >= maxObjects {
			return fmt.Errorf("expected at most %d objects, found more; select fewer objects with -n or -l", maxObjects)
		}
	}
}

func (kube *kubeClient) isServed(ctx context.Context, k kinds.Kind) (bool, error) {
	found, err := kube.discovery.ServerResourcesForGroupVersionWithContext(ctx, k.GVK().GroupVersion().String())
	switch {
	case k8serrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("discover the kinds of %s: %w", k.GVK().GroupVersion(), err)
	}
	for _, resource := range found.APIResources {
		if resource.Kind == k.GVK().Kind {
			return true, nil
		}
	}
	return false, nil
}

// namespaceText describes the namespaces of the command for messages.
func (kube *kubeClient) namespaceText() string {
	if kube.namespace == metav1.NamespaceAll {
		return "all namespaces"
	}
	return fmt.Sprintf("namespace %q", kube.namespace)
}
