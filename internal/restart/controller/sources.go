// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// The fields by which the cache finds objects: processes by their app, LRPs by their app and by their process.
const (
	byApp   = "app"
	byOwner = "ownerUID"
)

func index(mgr manager.Manager) error {
	ctx, indexer := context.Background(), mgr.GetFieldIndexer()
	for _, i := range []struct {
		kind  client.Object
		field string
		value func(client.Object) string
	}{
		{&korifiv1alpha1.CFProcess{}, byApp, func(o client.Object) string { return appOf(o) }},
		{&eiriniv1.LRP{}, byApp, func(o client.Object) string { return appOf(o) }},
		{&eiriniv1.LRP{}, byOwner, func(o client.Object) string {
			if owner := metav1.GetControllerOf(o); owner != nil {
				return string(owner.UID)
			}
			return ""
		}},
	} {
		if err := indexer.IndexField(ctx, i.kind, i.field, func(o client.Object) []string { return []string{i.value(o)} }); err != nil {
			return fmt.Errorf("index %T: %w", i.kind, err)
		}
	}
	return nil
}

// appOf is the app of a process, an LRP or a build.
func appOf(o client.Object) string {
	switch o := o.(type) {
	case *korifiv1alpha1.CFProcess:
		return o.Spec.AppRef.Name
	case *eiriniv1.LRP:
		return o.Spec.AppGUID
	case *korifiv1alpha1.CFBuild:
		return o.Spec.AppRef.Name
	default:
		return ""
	}
}

func appOfProcess(_ context.Context, o client.Object) []reconcile.Request {
	return request(o, appOf(o))
}

func appOfBuild(_ context.Context, o client.Object) []reconcile.Request { return request(o, appOf(o)) }

func appOfLRP(_ context.Context, o client.Object) []reconcile.Request { return request(o, appOf(o)) }

// processOf maps a Pod to its process.
func processOf(_ context.Context, pod client.Object) []reconcile.Request {
	return request(pod, pod.GetLabels()[korifiv1alpha1.ProcessGUIDLabel])
}

func (c Controller) processesOfApp(ctx context.Context, app client.Object) []reconcile.Request {
	return c.processes(ctx, app, app.GetName())
}

func (c Controller) processesOfBuild(ctx context.Context, o client.Object) []reconcile.Request {
	if build, ok := o.(*korifiv1alpha1.CFBuild); ok {
		return c.processes(ctx, build, build.Spec.AppRef.Name)
	}
	return nil
}

func (c Controller) processes(ctx context.Context, beside client.Object, app string) []reconcile.Request {
	var list korifiv1alpha1.CFProcessList
	if err := c.client.List(ctx, &list, client.InNamespace(beside.GetNamespace()), client.MatchingFields{byApp: app}); err != nil {
		return nil
	}
	var all []reconcile.Request
	for i := range list.Items {
		all = append(all, request(beside, list.Items[i].Name)...)
	}
	return all
}

func request(beside client.Object, name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: beside.GetNamespace(), Name: name}}}
}

// comesOrGoes leaves out changes: the app looks at what LRPs there are, and its processes tell the rest.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}
