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
	"github.com/torpor-dev/torpor/internal/switches/stopadapter"
)

// listKinds returns all kinds that can be stopped, including those of the StopAdapters on the API server.
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

// readForeignKinds returns the kinds of the StopAdapters. It returns none if the user may not list them. It skips an
// invalid StopAdapter, because the StopAdapter's own status reports the error.
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

// NewForeignKind returns the kind that a StopAdapter describes, or an error if the StopAdapter is invalid.
func NewForeignKind(a *torporv1alpha1.StopAdapter) (Kind, error) {
	k, err := stopadapter.NewKind(a)
	if err != nil {
		return Kind{}, fmt.Errorf("read the StopAdapter %s: %w", a.Name, err)
	}
	return Kind{switchedKind(k, []string{a.Name, a.Spec.Target.Resource, strings.ToLower(k.GVK.Kind)})}, nil
}

// AddToMapper registers the kind, so that a client finds it without discovery.
func (k Kind) AddToMapper(mapper *meta.DefaultRESTMapper) {
	resources := k.gvk.GroupVersion().WithResource(k.Resource())
	mapper.AddSpecific(k.gvk, resources, resources, meta.RESTScopeNamespace)
}

// findTarget parses KIND/NAME, where NAME may be a display name. StopAdapters are read only if KIND is not a built-in
// kind.
func (kube *kubeClient) findTarget(ctx context.Context, text string) (target, error) {
	if err := validateTarget(text); err != nil {
		return target{}, err
	}
	kindName, _, _ := strings.Cut(text, "/")
	kinds, err := kube.kindsFor(ctx, kindName)
	if err != nil {
		return target{}, err
	}
	t, err := parseTarget(kinds, text, kube.namespace)
	if err != nil {
		return t, err
	}
	return kube.resolveName(ctx, t)
}

// findKind parses the name of a kind.
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
