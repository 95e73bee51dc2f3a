// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"

	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cli/torpor"
)

// maxReviewedNamespaces bounds the reviews that one look costs who may not list a kind everywhere: two for each, of each kind.
const maxReviewedNamespaces = 200

// visibility is what one caller may see and change. It counts for rightsLifetime; one goroutine uses it.
type visibility struct {
	caller *authorization.Caller
	// everywhere has the kinds that the caller may list in all namespaces, places where else.
	everywhere map[string]bool
	places     map[kindNamespace]bool
	// unreviewed is how many namespaces were left out, because there are too many to ask about.
	unreviewed int
	canPatch   map[kindNamespace]bool
}

// reviewVisibility asks the API server, as the caller, what the caller may list.
func reviewVisibility(ctx context.Context, caller *authorization.Caller, all *inventory, q viewQuery) (*visibility, error) {
	v := &visibility{caller: caller, everywhere: map[string]bool{}, places: map[kindNamespace]bool{}, canPatch: map[kindNamespace]bool{}}
	for _, k := range torpor.ListKinds() {
		kind, namespaces := k.GVK().Kind, all.listNamespaces(k.GVK().Kind)
		if len(namespaces) == 0 || q.Kind != "" && q.Kind != kind {
			continue
		}
		permission := authorization.Permission{Verb: "list", Group: k.GVK().Group, Resource: k.Resource()}
		isEverywhere, err := caller.May(ctx, permission)
		if err != nil {
			return nil, fmt.Errorf("ask what may be seen: %w", err)
		}
		if isEverywhere {
			v.everywhere[kind] = true
			continue
		}
		if q.Namespace != "" {
			namespaces = []string{q.Namespace}
		}
		if surplus := len(namespaces) - maxReviewedNamespaces; surplus > 0 {
			namespaces, v.unreviewed = namespaces[:maxReviewedNamespaces], max(v.unreviewed, surplus)
		}
		allowed, err := caller.AllowedNamespaces(ctx, namespaces, permission)
		if err != nil {
			return nil, fmt.Errorf("ask what may be seen: %w", err)
		}
		for namespace := range allowed {
			v.places[kindNamespace{kind, namespace}] = true
		}
	}
	return v, nil
}

func (v *visibility) isVisible(at kindNamespace) bool { return v.everywhere[at.kind] || v.places[at] }

// mayPatch reports whether the caller may flip the switches of a kind in a namespace, as far as RBAC says; policies may refuse it still.
func (v *visibility) mayPatch(ctx context.Context, s *listedSwitch) bool {
	at := kindNamespace{s.Kind, s.Namespace}
	if may, isKnown := v.canPatch[at]; isKnown {
		return may
	}
	k, err := torpor.FindKind(s.Kind)
	if err != nil {
		return false
	}
	allowed, err := v.caller.AllowedNamespaces(ctx, []string{s.Namespace}, authorization.Permission{Verb: "patch", Group: k.GVK().Group, Resource: k.Resource()})
	if err != nil { // Without an answer there is no button; the next look asks again.
		return false
	}
	v.canPatch[at] = allowed[s.Namespace]
	return v.canPatch[at]
}
