// SPDX-License-Identifier: Apache-2.0

package page

import (
	"testing"
	"time"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestViewsAreSharedByScope covers callers with the same rights and with different rights, and a change between two
// views.
func TestViewsAreSharedByScope(t *testing.T) {
	t.Parallel()
	all, k, views := newInventory(), clusterDeployments(t), &viewCache{}
	put := func(namespace, name string) { all.put(k, newListing(k, buildCluster(namespace, name))) }
	put("a", "one")
	put("b", "two")
	see := func(mayPatch bool, namespaces ...string) *visibility {
		v := &visibility{everywhere: map[string]bool{k.Name(): len(namespaces) == 0}, places: map[kindNamespace]bool{}, canPatch: map[kindNamespace]bool{}}
		for _, namespace := range namespaces {
			v.places[kindNamespace{k.Name(), namespace}] = true
		}
		for _, namespace := range []string{"a", "b"} {
			v.canPatch[kindNamespace{k.Name(), namespace}] = mayPatch
		}
		return v
	}
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	get := func(sees *visibility, q viewQuery) view { return views.get(all, sees, q, now) }
	first, query := get(see(true), viewQuery{Page: 1}), viewQuery{Page: 1}
	isShared := func(v view) bool { return len(v.Rows) > 0 && &v.Rows[0] == &first.Rows[0] }
	testenv.ExpectEqual(t, "the same rights", true, isShared(get(see(false), query)))
	testenv.ExpectEqual(t, "another query", false, isShared(get(see(true), viewQuery{Page: 1, Sort: "name"})))
	testenv.ExpectEqual(t, "the rows of one namespace", 1, len(get(see(true, "b"), query).Rows))
	testenv.ExpectEqual(t, "the rows of no namespace", 0, len(get(see(true, "c"), query).Rows))
	testenv.ExpectEqual(t, "the button of an operator", "stop", first.withButtons(t.Context(), see(true)).Rows[0].Verb)
	testenv.ExpectEqual(t, "the button of a viewer of the same view", "", first.withButtons(t.Context(), see(false)).Rows[0].Verb)
	put("b", "three")
	testenv.ExpectEqual(t, "the rows after a change", 3, len(get(see(true), query).Rows))
	first = get(see(true), query)
	now = now.Add(coalesceTime)
	testenv.ExpectEqual(t, "a view that is too old", false, isShared(get(see(true), query)))
	testenv.ExpectEqual(t, "views that are kept", 1, len(views.views))
}
