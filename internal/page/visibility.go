// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"slices"

	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// maxReviewedNamespaces limits the access reviews for a caller who may not list a kind in all namespaces. There are two
// reviews per namespace and kind.
const maxReviewedNamespaces = 200

// visibility describes what one caller may see and change. It is valid for rightsLifetime, and used by one goroutine.
type visibility struct {
	caller *authorization.Caller
	// everywhere maps a kind to whether the caller may list it in all namespaces. places contains the same for single
	// namespaces that were reviewed.
	everywhere map[string]bool
	places     map[kindNamespace]bool
	// reviewed is the placesVersion of the inventory at the last review. It is -1 before the first.
	reviewed int
	// unreviewed is the largest number of a kind's namespaces beyond maxReviewedNamespaces.
	unreviewed int
	canPatch   map[kindNamespace]bool
}

// reviewVisibility determines with access reviews, using the caller's token, which of the query's kinds the caller may
// list, and in which namespaces.
func reviewVisibility(ctx context.Context, caller *authorization.Caller, all *inventory, q viewQuery) (*visibility, error) {
	v := &visibility{caller: caller, everywhere: map[string]bool{}, places: map[kindNamespace]bool{}, reviewed: -1, canPatch: map[kindNamespace]bool{}}
	return v, v.reviewPlaces(ctx, all, q)
}

// reviewPlaces reviews the places that were added since the last review, so the first object of a kind in a namespace
// is shown immediately.
func (v *visibility) reviewPlaces(ctx context.Context, all *inventory, q viewQuery) error {
	places := all.placesVersion()
	if places == v.reviewed {
		return nil
	}
	v.unreviewed = 0
	for _, k := range all.listKinds() {
		if q.Kind != "" && q.Kind != k.Name() {
			continue
		}
		if err := v.reviewKind(ctx, k, all.listNamespaces(k.Name()), q.Namespace); err != nil {
			return fmt.Errorf("review the rights to list: %w", err)
		}
	}
	v.reviewed = places
	return nil
}

func (v *visibility) reviewKind(ctx context.Context, k *kinds.Kind, namespaces []string, only string) error {
	if len(namespaces) == 0 {
		return nil
	}
	kind, permission := k.Name(), authorization.Permission{Verb: "list", Group: k.GVK().Group, Resource: k.Resource()}
	isEverywhere, isKnown := v.everywhere[kind]
	if !isKnown {
		var err error
		if isEverywhere, err = v.caller.May(ctx, permission); err != nil {
			return err
		}
		v.everywhere[kind] = isEverywhere
	}
	if isEverywhere {
		return nil
	}
	if only != "" {
		namespaces = []string{only}
	}
	if surplus := len(namespaces) - maxReviewedNamespaces; surplus > 0 {
		namespaces, v.unreviewed = namespaces[:maxReviewedNamespaces], max(v.unreviewed, surplus)
	}
	namespaces = slices.DeleteFunc(namespaces, func(namespace string) bool {
		_, isKnown := v.places[kindNamespace{kind, namespace}]
		return isKnown
	})
	allowed, err := v.caller.AllowedNamespaces(ctx, namespaces, permission)
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		v.places[kindNamespace{kind, namespace}] = allowed[namespace]
	}
	return nil
}

func (v *visibility) isVisible(at kindNamespace) bool { return v.everywhere[at.kind] || v.places[at] }

// seesSomeOf reports whether the caller may list a kind in at least one reviewed namespace.
func (v *visibility) seesSomeOf(kind string) bool {
	if v.everywhere[kind] {
		return true
	}
	for at, isAllowed := range v.places {
		if at.kind == kind && isAllowed {
			return true
		}
	}
	return false
}

// mayPatch reports whether the caller is authorized to patch objects of the switch's kind in its namespace. Admission
// policies may still reject the change.
func (v *visibility) mayPatch(ctx context.Context, s *listedSwitch) bool {
	at := kindNamespace{s.kind.Name(), s.Namespace}
	if may, isKnown := v.canPatch[at]; isKnown {
		return may
	}
	allowed, err := v.caller.AllowedNamespaces(ctx, []string{s.Namespace}, authorization.Permission{Verb: "patch", Group: s.kind.GVK().Group, Resource: s.kind.Resource()})
	if err != nil { // After an error there is no button until the next update.
		return false
	}
	v.canPatch[at] = allowed[s.Namespace]
	return v.canPatch[at]
}
