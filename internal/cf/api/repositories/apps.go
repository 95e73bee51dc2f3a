// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// The resources that callers need rights for.
const (
	Apps      = "cfapps"
	Processes = "cfprocesses"
	Builds    = "cfbuilds"
	Packages  = "cfpackages"
)

// What a caller calls them.
const (
	AppThing     = "App"
	ProcessThing = "Process"
	BuildThing   = "Build"
	PackageThing = "Package"
	DropletThing = "Droplet"
)

// App is an app that the caller may see.
func (s *Store) App(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFApp, error) {
	var found korifiv1alpha1.CFAppList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return nil, fmt.Errorf("find the app: %w", err)
	}
	for i := range found.Items {
		if err := s.visible(ctx, caller, found.Items[i].Namespace, Apps, AppThing); err == nil || len(found.Items) == 1 {
			return &found.Items[i], err
		}
	}
	return nil, apierrors.NotFound(AppThing)
}

// LiveApp is an app as it is this moment, read with the caller's own rights.
func (s *Store) LiveApp(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFApp, error) {
	cached, err := s.App(ctx, caller, guid)
	if err != nil {
		return nil, err
	}
	live := &korifiv1alpha1.CFApp{}
	if err := caller.Client.Get(ctx, client.ObjectKeyFromObject(cached), live); err != nil {
		return nil, apierrors.Of(err, AppThing)
	}
	return live, nil
}

// AppsIn are the apps of some spaces in no order, as the cache holds them: nobody may change them.
func (s *Store) AppsIn(spaces []string) ([]*korifiv1alpha1.CFApp, error) {
	return in[*korifiv1alpha1.CFApp](s.apps, spaces)
}

func in[T any](all toolscache.Indexer, spaces []string) ([]T, error) {
	var found []T
	for _, space := range spaces {
		objects, err := all.ByIndex(toolscache.NamespaceIndex, space)
		if err != nil {
			return nil, fmt.Errorf("list what is in %s: %w", space, err)
		}
		found = slices.Grow(found, len(objects))
		for _, o := range objects {
			if one, ok := o.(T); ok {
				found = append(found, one)
			}
		}
	}
	return found, nil
}

// AppCalled is the app of a space that has a name; nil if there is none.
func (s *Store) AppCalled(space, name string) (*korifiv1alpha1.CFApp, error) {
	all, err := s.AppsIn([]string{space})
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Spec.DisplayName == name {
			return a, nil
		}
	}
	return nil, nil
}

// Process is a process that the caller may see.
func (s *Store) Process(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFProcess, error) {
	var found korifiv1alpha1.CFProcessList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return nil, fmt.Errorf("find the process: %w", err)
	}
	if len(found.Items) == 0 {
		return nil, apierrors.NotFound(ProcessThing)
	}
	return &found.Items[0], s.visible(ctx, caller, found.Items[0].Namespace, Processes, ProcessThing)
}

// ProcessesOf are those of an app, web first. Who may see the app may see them.
func (s *Store) ProcessesOf(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFProcess, error) {
	var found korifiv1alpha1.CFProcessList
	if err := s.cache.List(ctx, &found, client.InNamespace(app.Namespace), client.MatchingFields{byApp: app.Name}); err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := pointers(found.Items)
	slices.SortFunc(all, func(a, b *korifiv1alpha1.CFProcess) int {
		web := func(p *korifiv1alpha1.CFProcess) int {
			if p.Spec.ProcessType == korifiv1alpha1.WebProcess {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(web(a), web(b)), cmp.Compare(a.Spec.ProcessType, b.Spec.ProcessType))
	})
	return all, nil
}

// ProcessOf is the process of a type.
func (s *Store) ProcessOf(ctx context.Context, app *korifiv1alpha1.CFApp, kind string) (*korifiv1alpha1.CFProcess, error) {
	all, err := s.ProcessesOf(ctx, app)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Spec.ProcessType == kind {
			return p, nil
		}
	}
	return nil, apierrors.NotFound(ProcessThing)
}

// ProcessesIn are the processes of some spaces in no order, as the cache holds them: nobody may change them.
func (s *Store) ProcessesIn(spaces []string) ([]*korifiv1alpha1.CFProcess, error) {
	return in[*korifiv1alpha1.CFProcess](s.processes, spaces)
}

// visible: what somebody may not see is not there.
func (s *Store) visible(ctx context.Context, caller *authorization.Caller, namespace, resource, thing string) error {
	ok, err := caller.May(ctx, authorization.Question{Namespace: namespace, Verb: "get", Resource: resource})
	if err != nil {
		return err
	}
	if !ok {
		return apierrors.NotFound(thing)
	}
	return nil
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

// Older compares by age, and by name where that is the same.
func Older[T client.Object](a, b T) int {
	if c := a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time); c != 0 {
		return c
	}
	return cmp.Compare(a.GetName(), b.GetName())
}

func oldestFirst[T client.Object](all []T) { slices.SortFunc(all, Older[T]) }
