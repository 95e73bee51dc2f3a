// SPDX-License-Identifier: Apache-2.0

// Package registry has the one list of a process's groups: it keeps their names apart and shows those of a manager.
package registry

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
)

// GroupEntry is an entry of the list.
type GroupEntry struct {
	Name string
	// Shared lets other groups have the name, too.
	Shared bool
	// Elected is the channel of the group's manager, which stays the same however the manager is decorated.
	Elected <-chan struct{}
	// Status returns what the page shows of the group.
	Status func() any
}

// AddGroup adds a group until leave is called. First is true for the first one of its manager.
func AddGroup(g GroupEntry) (leave func(), first bool, err error) {
	all, err := sharedList()
	if err != nil {
		return nil, false, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	first = true
	for _, other := range all.groups {
		if other.Name == g.Name && !g.Shared && !other.Shared {
			return nil, false, errors.New("expected a name of its own, found another group of this name: set one with conditional.Name, or with Named of the builder")
		}
		first = first && other.Elected != g.Elected
	}
	entry := &g
	all.groups = append(all.groups, entry)
	return func() { all.removeGroup(entry) }, first, nil
}

func (all *groupList) removeGroup(entry *GroupEntry) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.groups = slices.DeleteFunc(all.groups, func(g *GroupEntry) bool { return g == entry })
}

// groupsOfManager returns the groups of a manager in the order of their names.
func (all *groupList) groupsOfManager(elected <-chan struct{}) []*GroupEntry {
	all.mu.Lock()
	defer all.mu.Unlock()
	var found []*GroupEntry
	for _, g := range all.groups {
		if g.Elected == elected {
			found = append(found, g)
		}
	}
	slices.SortStableFunc(found, func(a, b *GroupEntry) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// StatusPage shows the statuses of a manager's groups as JSON: {"groups": […]}.
func StatusPage(elected <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all, err := sharedList()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		groups := []any{}
		for _, g := range all.groupsOfManager(elected) {
			groups = append(groups, g.Status())
		}
		page, err := json.MarshalIndent(map[string]any{"groups": groups}, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(page, '\n')) // An error means that the client has gone away.
	})
}
