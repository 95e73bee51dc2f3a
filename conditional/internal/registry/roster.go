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

// Group is an entry of the list.
type Group struct {
	Name string
	// Shared lets other groups have the name, too.
	Shared bool
	// Elected is the channel of the group's manager, which stays the same however the manager is decorated.
	Elected <-chan struct{}
	// Status returns what the page shows of the group.
	Status func() any
}

// Join adds a group until leave is called. First says that it is the first one of its manager.
func Join(g Group) (leave func(), first bool, err error) {
	all, err := registered()
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
	return func() { all.leave(entry) }, first, nil
}

func (all *list) leave(entry *Group) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.groups = slices.DeleteFunc(all.groups, func(g *Group) bool { return g == entry })
}

// of returns the groups of a manager in the order of their names.
func (all *list) of(elected <-chan struct{}) []*Group {
	all.mu.Lock()
	defer all.mu.Unlock()
	var found []*Group
	for _, g := range all.groups {
		if g.Elected == elected {
			found = append(found, g)
		}
	}
	slices.SortStableFunc(found, func(a, b *Group) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// Page shows the statuses of a manager's groups as JSON: {"groups": […]}.
func Page(elected <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all, err := registered()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		groups := []any{}
		for _, g := range all.of(elected) {
			groups = append(groups, g.Status())
		}
		page, err := json.MarshalIndent(map[string]any{"groups": groups}, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(page, '\n')) // Who has gone away needs no page.
	})
}
