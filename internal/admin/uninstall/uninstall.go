// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes Torpor from a cluster. The order of the steps ensures that no step depends on a part
// that an earlier step has removed.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/admin/objecteditor"
	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
	"github.com/torpor-dev/torpor/internal/leaderelection/installationlock"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	podsTimeout  = 50 * time.Second
	podsInterval = 500 * time.Millisecond
)

// Options select what is removed, and from which installation.
type Options struct {
	objecteditor.Editor

	// Namespace is the namespace of the installation.
	Namespace string
	// DeletesCRDs also deletes Torpor's CustomResourceDefinitions, but never those of another project. If objects of
	// these kinds exist, nothing is done unless DeletesObjects is set, which deletes them as well.
	DeletesCRDs, DeletesObjects bool
	// Clock is used while waiting for deletions.
	Clock clock.Clock
}

// Run removes Torpor. It may be run again after an error; missing objects are not an error.
func Run(ctx context.Context, o Options) error {
	definitions, err := o.listOwnDefinitions(ctx)
	if err = errors.Join(err, o.requireNoObjects(ctx, definitions)); err != nil {
		return err
	}
	// Remove the webhooks first, because without a manager they would block writes. Remove the finalizers after the
	// manager, because the manager would add them again.
	for _, step := range []func(context.Context) error{o.removeWebhooks, o.removePrograms, o.awaitPods} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return errors.Join(o.removeFinalizers(ctx), o.removeLeasesAndSecrets(ctx), o.warnOfSleepers(ctx), o.warnOfStopped(ctx), o.removeDefinitions(ctx, definitions))
}

func (o Options) removeWebhooks(ctx context.Context) error {
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := errors.Join(o.removeWebhook(ctx, "torpor", mutating), o.removeWebhook(ctx, "torpor", validating))
	for _, name := range installationlock.ListRecordNames() {
		err = errors.Join(err, o.removeWebhook(ctx, name, &admissionregistrationv1.MutatingWebhookConfiguration{}))
	}
	return err
}

// removeWebhook deletes a webhook configuration, unless it belongs to another installation.
func (o Options) removeWebhook(ctx context.Context, name string, obj client.Object) error {
	if found, err := o.HasObject(ctx, types.NamespacedName{Name: name}, obj); err != nil || !found {
		return err
	}
	var services []*admissionregistrationv1.ServiceReference
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for _, w := range c.Webhooks {
			services = append(services, w.ClientConfig.Service)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for _, w := range c.Webhooks {
			services = append(services, w.ClientConfig.Service)
		}
	}
	if slices.ContainsFunc(services, func(s *admissionregistrationv1.ServiceReference) bool { return s != nil && s.Namespace != o.Namespace }) {
		o.Print("kept", obj, "it points to an installation in another namespace")
		return nil
	}
	return o.DeleteObject(ctx, obj, "")
}

// removePrograms deletes the Deployments of managers, which may have any names, and of the CF API.
func (o Options) removePrograms(ctx context.Context) error {
	return o.EachObject(ctx, appsv1.SchemeGroupVersion.WithKind("Deployment"), func(obj *metav1.PartialObjectMetadata) error {
		if obj.Labels["app.kubernetes.io/name"] != "torpor" && !slices.Contains([]string{"torpor-manager", "torpor-cf-api"}, obj.Name) {
			return nil
		}
		return o.DeleteObject(ctx, obj, "")
	}, client.InNamespace(o.Namespace))
}

func (o Options) awaitPods(ctx context.Context) error {
	ours, err := labels.NewRequirement("app.kubernetes.io/name", selection.In, []string{"torpor", "torpor-cf-api"})
	if err != nil || o.DryRun {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	for {
		var pods corev1.PodList
		if err := o.Client.List(ctx, &pods, client.InNamespace(o.Namespace), client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*ours)}); err != nil {
			return fmt.Errorf("list the Pods of Torpor: %w", err)
		}
		if len(pods.Items) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("expected the Pods of Torpor in %s to end within %s, found %s; run the command again when they are gone", o.Namespace, podsTimeout, pods.Items[0].Name)
		case <-o.Clock.After(podsInterval):
		}
	}
}

func listFinalizers() (all []kinds.Finalizer) {
	for _, k := range slices.Backward(kinds.ListBuiltIn()) {
		if finalized, isFinalized := k.Definition.(kinds.Finalized); isFinalized {
			all = append(all, finalized.ListFinalizers()...)
		}
	}
	return append(all,
		kinds.Finalizer{Kind: torporv1alpha1.SlumberKind(), Name: torporv1alpha1.SlumberFinalizer},
		kinds.Finalizer{Kind: torporv1alpha1.ClusterSlumberKind(), Name: torporv1alpha1.SlumberFinalizer},
		kinds.Finalizer{Kind: torporv1alpha1.StopAdapterKind(), Name: torporv1alpha1.StopAdapterFinalizer},
	)
}

func (o Options) removeFinalizers(ctx context.Context) error {
	var failed []error
	for _, f := range listFinalizers() {
		failed = append(failed, o.EachObject(ctx, f.Kind, func(obj *metav1.PartialObjectMetadata) error { return o.removeFinalizer(ctx, f, obj) }))
	}
	return errors.Join(failed...)
}

func (o Options) removeFinalizer(ctx context.Context, f kinds.Finalizer, obj *metav1.PartialObjectMetadata) error {
	if !slices.Contains(obj.Finalizers, f.Name) {
		return nil
	}
	if f.Upstream.SharesFinalizer {
		if other := otherwriter.FindWriter(otherwriter.Observed{Upstream: f.Upstream, Fields: obj.ManagedFields, Finalizers: obj.Finalizers}); other != "" {
			o.Print("kept", obj, "its finalizer: "+other)
			return nil
		}
	}
	if o.DryRun {
		o.Print("would release", obj, "from the finalizer "+f.Name)
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(obj.Finalizers), func(name string) bool { return name == f.Name })
	if err := o.PatchMetadata(ctx, obj, map[string]any{"finalizers": left}); err != nil {
		return err
	}
	o.Print("released", obj, "from the finalizer "+f.Name)
	return nil
}

func (o Options) removeLeasesAndSecrets(ctx context.Context) error {
	acting := &coordinationv1.Lease{}
	found, err := o.HasObject(ctx, types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}, acting)
	if err != nil {
		return err
	}
	if holder := acting.Spec.HolderIdentity; found && holder != nil && *holder == o.Namespace {
		if err := o.DeleteObject(ctx, acting, ""); err != nil {
			return err
		}
	}
	leases := coordinationv1.SchemeGroupVersion.WithKind("Lease")
	remove := func(obj *metav1.PartialObjectMetadata) error { return o.DeleteObject(ctx, obj, "") }
	if err := o.EachObject(ctx, leases, remove, client.InNamespace(o.Namespace), client.HasLabels{torporv1alpha1.PartLabel}); err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: o.Namespace, Name: "torpor-manager"}
	for _, obj := range []client.Object{&coordinationv1.Lease{}, &corev1.Secret{}} {
		if found, err := o.HasObject(ctx, key, obj); err != nil {
			return err
		} else if found {
			if err := o.DeleteObject(ctx, obj, ""); err != nil {
				return err
			}
		}
		key.Name = "torpor-webhook"
	}
	return nil
}

// warnOfSleepers lists the objects that remain stopped by their own spec, because no controller starts them.
func (o Options) warnOfSleepers(ctx context.Context) error {
	var failed []error
	for _, k := range kinds.ListBuiltIn() {
		abandoned, mayStay := k.Definition.(kinds.Abandoned)
		if !mayStay {
			continue
		}
		list := k.NewList()
		if err := o.Client.List(ctx, list); err != nil {
			failed = append(failed, objecteditor.IgnoreNotServed(err))
			continue
		}
		failed = append(failed, meta.EachListItem(list, func(item runtime.Object) error {
			if obj, isObject := item.(client.Object); isObject {
				if state, consequence := abandoned.DescribeAbandoned(obj); state != "" {
					o.Print(state, obj, consequence)
				}
			}
			return nil
		}))
	}
	return errors.Join(failed...)
}

// warnOfStopped lists the objects that remain stopped by their own switch, because no controller resets it.
func (o Options) warnOfStopped(ctx context.Context) error {
	var switched []schema.GroupVersionKind
	for _, k := range kinds.ListWorkloads() {
		switched = append(switched, k.GVK())
	}
	var adapters torporv1alpha1.StopAdapterList
	failed := []error{objecteditor.IgnoreNotServed(o.Client.List(ctx, &adapters))}
	for _, a := range adapters.Items {
		switched = append(switched, schema.GroupVersionKind{Group: a.Spec.Target.Group, Version: a.Spec.Target.Version, Kind: a.Spec.Target.Kind})
	}
	for _, kind := range switched {
		failed = append(failed, o.EachObject(ctx, kind, func(obj *metav1.PartialObjectMetadata) error {
			if obj.Annotations[torporv1alpha1.RestoreAnnotation] != "" {
				o.Print("left stopped", obj, "its previous state is in its annotation "+torporv1alpha1.RestoreAnnotation)
			}
			return nil
		}))
	}
	return errors.Join(failed...)
}
