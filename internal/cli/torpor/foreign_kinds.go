// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/stopadapter"
)

// listKinds returns all kinds that can be stopped, including those of the StopAdapters on the API server.
func (kube *kubeClient) listKinds(ctx context.Context) ([]kinds.Kind, error) {
	if !kube.isAsked {
		foreign, err := kube.readForeignKinds(ctx)
		if err != nil {
			return nil, err
		}
		kube.foreign, kube.isAsked = foreign, true
	}
	return slices.Concat(kinds.ListBuiltIn(), kube.foreign), nil
}

// readForeignKinds returns the kinds of the StopAdapters. It returns none if StopAdapters are not served or the user
// may not list them. It skips an invalid StopAdapter, because the StopAdapter's own status reports the error.
func (kube *kubeClient) readForeignKinds(ctx context.Context) (found []kinds.Kind, err error) {
	err = eachItem(ctx, kube, &torporv1alpha1.StopAdapterList{}, func(a *torporv1alpha1.StopAdapter) {
		k, err := stopadapter.NewKind(a)
		if err != nil {
			return
		}
		k.AddToMapper(kube.mapper)
		found = append(found, k)
	})
	if connection.IsKindNotServed(err) || k8serrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the StopAdapters: %w", err)
	}
	return found, nil
}

// findNamed returns the objects that the user named. All are resolved, so that an error occurs before the first one
// is changed.
func (kube *kubeClient) findNamed(ctx context.Context, objects []namedObject) ([]target, error) {
	var targets []target
	for _, o := range objects {
		t, err := kube.findTarget(ctx, o)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// findTarget resolves the kind of an object, and its name, which may be a display name.
func (kube *kubeClient) findTarget(ctx context.Context, o namedObject) (target, error) {
	k, err := kube.findKind(ctx, o.kindName, o.String())
	if err != nil {
		return target{}, err
	}
	return kube.resolveName(ctx, target{kind: k, namespace: kube.namespace, name: o.name})
}

// findKinds resolves the names of kinds. A kind that has two of the names is returned once.
func (kube *kubeClient) findKinds(ctx context.Context, names []string) ([]kinds.Kind, error) {
	var found []kinds.Kind
	for _, name := range names {
		k, err := kube.findKind(ctx, name, name)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(found, func(other kinds.Kind) bool { return other.GVK() == k.GVK() }) {
			found = append(found, k)
		}
	}
	return found, nil
}

// findKind resolves the name of a kind; errors quote argument, the command-line argument that contains the name.
// StopAdapters are read only if no built-in kind has the name. The short names of their kinds are read only if no
// kind of a StopAdapter has the name either.
func (kube *kubeClient) findKind(ctx context.Context, name, argument string) (kinds.Kind, error) {
	known := kinds.ListBuiltIn()
	if found := matchKinds(known, name); len(found) == 1 {
		return found[0], nil
	}
	known, err := kube.listKinds(ctx)
	if err != nil {
		return kinds.Kind{}, err
	}
	found := matchKinds(known, name)
	if len(found) == 0 {
		found = kube.matchShortNames(ctx, name)
	}
	return chooseKind(known, found, name, argument)
}

// matchShortNames returns the kinds of StopAdapters whose CustomResourceDefinition defines this short name. An API
// group that cannot be discovered is skipped.
func (kube *kubeClient) matchShortNames(ctx context.Context, name string) (found []kinds.Kind) {
	for _, k := range kube.foreign {
		served, err := kube.discovery.ServerResourcesForGroupVersionWithContext(ctx, k.GVK().GroupVersion().String())
		if err != nil {
			continue
		}
		for _, r := range served.APIResources {
			if r.Name == k.Resource() && slices.Contains(r.ShortNames, strings.ToLower(name)) {
				found = append(found, k)
			}
		}
	}
	return found
}
