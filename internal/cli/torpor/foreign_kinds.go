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

// readForeignKinds returns the kinds of the StopAdapters. It returns none if the user may not list them. It skips an
// invalid StopAdapter, because the StopAdapter's own status reports the error.
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

// findTarget parses KIND/NAME, where NAME may be a display name. StopAdapters are read only if KIND is not a built-in
// kind.
func (kube *kubeClient) findTarget(ctx context.Context, text string) (target, error) {
	if err := validateTarget(text); err != nil {
		return target{}, err
	}
	kindName, _, _ := strings.Cut(text, "/")
	known, err := kube.kindsFor(ctx, kindName)
	if err != nil {
		return target{}, err
	}
	t, err := parseTarget(known, text, kube.namespace)
	if err != nil {
		return t, err
	}
	return kube.resolveName(ctx, t)
}

// findKind parses the name of a kind.
func (kube *kubeClient) findKind(ctx context.Context, text string) (kinds.Kind, error) {
	known, err := kube.kindsFor(ctx, text)
	if err != nil {
		return kinds.Kind{}, err
	}
	return parseKind(known, text)
}

func (kube *kubeClient) kindsFor(ctx context.Context, kindName string) ([]kinds.Kind, error) {
	usual := kinds.ListBuiltIn()
	if slices.ContainsFunc(usual, func(k kinds.Kind) bool { return k.HasName(kindName) }) {
		return usual, nil
	}
	return kube.listKinds(ctx)
}
