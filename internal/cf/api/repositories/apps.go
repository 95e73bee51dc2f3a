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
	AppResourceType     = "App"
	ProcessResourceType = "Process"
	BuildResourceType   = "Build"
	PackageResourceType = "Package"
	DropletResourceType = "Droplet"
)

// GetApp is an app that the caller may see.
func (s *Store) GetApp(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFApp, error) {
	var found korifiv1alpha1.CFAppList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return nil, fmt.Errorf("find the app: %w", err)
	}
	for i := range found.Items {
		if err := s.checkVisible(ctx, caller, found.Items[i].Namespace, Apps, AppResourceType); err == nil || len(found.Items) == 1 {
			return &found.Items[i], err
		}
	}
	return nil, apierrors.NewNotFound(AppResourceType)
}

// GetLiveApp is an app as it is this moment, read with the caller's own rights.
func (s *Store) GetLiveApp(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFApp, error) {
	cached, err := s.GetApp(ctx, caller, guid)
	if err != nil {
		return nil, err
	}
	live := &korifiv1alpha1.CFApp{}
	if err := caller.Client.Get(ctx, client.ObjectKeyFromObject(cached), live); err != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	return live, nil
}

// ListApps are the apps of some spaces in no order, as the cache holds them: nobody may change them.
func (s *Store) ListApps(spaces []string) ([]*korifiv1alpha1.CFApp, error) {
	return listInSpaces[*korifiv1alpha1.CFApp](s.apps, spaces)
}

func listInSpaces[T any](all toolscache.Indexer, spaces []string) ([]T, error) {
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

// FindAppByName is the app of a space that has a name; nil if there is none.
func (s *Store) FindAppByName(space, name string) (*korifiv1alpha1.CFApp, error) {
	all, err := s.ListApps([]string{space})
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

// GetProcess is a process that the caller may see.
func (s *Store) GetProcess(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFProcess, error) {
	var found korifiv1alpha1.CFProcessList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return nil, fmt.Errorf("find the process: %w", err)
	}
	if len(found.Items) == 0 {
		return nil, apierrors.NewNotFound(ProcessResourceType)
	}
	return &found.Items[0], s.checkVisible(ctx, caller, found.Items[0].Namespace, Processes, ProcessResourceType)
}

// ListProcessesOfApp are those of an app, web first. Who may see the app may see them.
func (s *Store) ListProcessesOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFProcess, error) {
	var found korifiv1alpha1.CFProcessList
	if err := s.cache.List(ctx, &found, client.InNamespace(app.Namespace), client.MatchingFields{byApp: app.Name}); err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := pointersTo(found.Items)
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

// GetProcessByType is the process of a type.
func (s *Store) GetProcessByType(ctx context.Context, app *korifiv1alpha1.CFApp, kind string) (*korifiv1alpha1.CFProcess, error) {
	all, err := s.ListProcessesOfApp(ctx, app)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Spec.ProcessType == kind {
			return p, nil
		}
	}
	return nil, apierrors.NewNotFound(ProcessResourceType)
}

// ListProcesses are the processes of some spaces in no order, as the cache holds them: nobody may change them.
func (s *Store) ListProcesses(spaces []string) ([]*korifiv1alpha1.CFProcess, error) {
	return listInSpaces[*korifiv1alpha1.CFProcess](s.processes, spaces)
}

// checkVisible: what somebody may not see is not there.
func (s *Store) checkVisible(ctx context.Context, caller *authorization.Caller, namespace, resource, thing string) error {
	ok, err := caller.May(ctx, authorization.Permission{Namespace: namespace, Verb: "get", Resource: resource})
	if err != nil {
		return err
	}
	if !ok {
		return apierrors.NewNotFound(thing)
	}
	return nil
}

func pointersTo[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

// CompareByAge compares by age, and by name where that is the same.
func CompareByAge[T client.Object](a, b T) int {
	if c := a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time); c != 0 {
		return c
	}
	return cmp.Compare(a.GetName(), b.GetName())
}

func sortByAge[T client.Object](all []T) { slices.SortFunc(all, CompareByAge[T]) }
