// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/foreignswitch"
)

// listKinds returns all kinds that can be stopped, with those of the StopAdapters of the API server.
func (kube *kubeClient) listKinds(ctx context.Context) ([]stoppableKind, error) {
	if !kube.isAsked {
		foreign, err := kube.readForeignKinds(ctx)
		if err != nil {
			return nil, err
		}
		kube.foreign, kube.isAsked = foreign, true
	}
	return slices.Concat(stoppableKinds(), kube.foreign), nil
}

// readForeignKinds reads the StopAdapters. Nothing is said of those that the user may not read, nor of one that makes no sense, whose own status
// says so.
func (kube *kubeClient) readForeignKinds(ctx context.Context) (kinds []stoppableKind, err error) {
	err = eachItem(ctx, kube, &torporv1alpha1.StopAdapterList{}, func(a *torporv1alpha1.StopAdapter) {
		k, err := NewForeignKind(a)
		if err != nil {
			return
		}
		k.AddToMapper(kube.mapper)
		kinds = append(kinds, k.stoppableKind)
	})
	if connection.IsKindNotServed(err) || k8serrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the StopAdapters: %w", err)
	}
	return kinds, nil
}

// NewForeignKind returns the kind that a StopAdapter is about, or what is wrong with that.
func NewForeignKind(a *torporv1alpha1.StopAdapter) (Kind, error) {
	k, err := foreignswitch.NewKind(a)
	if err != nil {
		return Kind{}, fmt.Errorf("read the StopAdapter %s: %w", a.Name, err)
	}
	return Kind{switchedKind(k, []string{a.Name, a.Spec.Target.Resource, strings.ToLower(k.GVK.Kind)})}, nil
}

// AddToMapper lets a client find the kind without discovery.
func (k Kind) AddToMapper(mapper *meta.DefaultRESTMapper) {
	resources := k.gvk.GroupVersion().WithResource(k.Resource())
	mapper.AddSpecific(k.gvk, resources, resources, meta.RESTScopeNamespace)
}

// findTarget reads KIND/NAME. The API server is asked for more kinds only where the kind is none of the usual ones.
func (kube *kubeClient) findTarget(ctx context.Context, text string) (target, error) {
	if err := validateTarget(text); err != nil {
		return target{}, err
	}
	kindName, _, _ := strings.Cut(text, "/")
	kinds, err := kube.kindsFor(ctx, kindName)
	if err != nil {
		return target{}, err
	}
	return parseTarget(kinds, text, kube.namespace)
}

// findKind reads the name of a kind.
func (kube *kubeClient) findKind(ctx context.Context, text string) (stoppableKind, error) {
	kinds, err := kube.kindsFor(ctx, text)
	if err != nil {
		return stoppableKind{}, err
	}
	return parseKind(kinds, text)
}

func (kube *kubeClient) kindsFor(ctx context.Context, kindName string) ([]stoppableKind, error) {
	usual := stoppableKinds()
	if slices.ContainsFunc(usual, func(k stoppableKind) bool { return k.hasName(kindName) }) {
		return usual, nil
	}
	return kube.listKinds(ctx)
}
