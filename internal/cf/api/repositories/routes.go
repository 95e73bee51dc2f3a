// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/cf/route"
)

// ListDomains returns all domains, oldest first. The oldest is the default domain. Domain names are not secret, because
// all orgs share them.
func (s *Store) ListDomains(ctx context.Context) ([]*korifiv1alpha1.CFDomain, error) {
	all, err := list[*korifiv1alpha1.CFDomain](ctx, s, "list domains", &korifiv1alpha1.CFDomainList{}, client.InNamespace(s.rootNamespace))
	slices.SortFunc(all, revision.CompareByAge)
	return all, err
}

// GetDomain returns the domain with a GUID.
func (s *Store) GetDomain(ctx context.Context, guid string) (*korifiv1alpha1.CFDomain, error) {
	all, err := s.ListDomains(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(d *korifiv1alpha1.CFDomain) bool { return d.Name == guid })
	if i < 0 {
		return nil, apierrors.NewNotFound(DomainResourceType)
	}
	return all[i], nil
}

// CreateDomain creates a domain as the caller.
func (s *Store) CreateDomain(ctx context.Context, caller *authorization.Caller, name string, m *payloads.Metadata) (*korifiv1alpha1.CFDomain, error) {
	domain := &korifiv1alpha1.CFDomain{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.rootNamespace, Name: uuid.NewString()}, Spec: korifiv1alpha1.CFDomainSpec{Name: name},
	}
	setMetadata(domain, m)
	return create(ctx, s, caller, domain)
}

// maxParallelDeletions limits the concurrent requests while a domain's routes are deleted.
const maxParallelDeletions = 8

// DeleteRoutesOfDomain deletes the routes of a domain in all spaces, as the caller. It deletes no route unless the
// caller may delete all of them.
func (s *Store) DeleteRoutesOfDomain(ctx context.Context, caller *authorization.Caller, domain *korifiv1alpha1.CFDomain) error {
	// A caller who may not delete the domain must not delete its routes, either.
	if err := caller.Client.Delete(ctx, domain.DeepCopy(), client.DryRunAll); err != nil {
		return apierrors.FromError(err, DomainResourceType)
	}
	routes, err := s.listRoutesOfDomain(ctx, domain.Name)
	if err != nil || len(routes) == 0 {
		return err
	}
	var spaces []string
	for _, obj := range routes {
		spaces = append(spaces, obj.Namespace)
	}
	slices.Sort(spaces)
	spaces = slices.Compact(spaces)
	allowed, err := caller.AllowedNamespaces(ctx, spaces, authorization.Permission{Verb: "delete", Resource: routesResource})
	if err != nil {
		return err
	}
	if len(allowed) < len(spaces) {
		return apierrors.NewUnprocessableEntity(fmt.Sprintf("expected permission to delete the %d routes of the domain, found none in %d of %d spaces; ask the developers of these spaces to delete the routes",
			len(routes), len(spaces)-len(allowed), len(spaces)))
	}
	var deletions errgroup.Group
	deletions.SetLimit(maxParallelDeletions)
	for _, obj := range routes {
		deletions.Go(func() error { return client.IgnoreNotFound(caller.Client.Delete(ctx, obj.DeepCopy())) })
	}
	if err := deletions.Wait(); err != nil {
		return apierrors.FromError(err, RouteResourceType)
	}
	return nil
}

func (s *Store) listRoutesOfDomain(ctx context.Context, domain string) ([]*korifiv1alpha1.CFRoute, error) {
	all, err := list[*korifiv1alpha1.CFRoute](ctx, s, "list the routes of a domain", &korifiv1alpha1.CFRouteList{})
	return slices.DeleteFunc(all, func(r *korifiv1alpha1.CFRoute) bool {
		return r.Spec.DomainRef.Name != domain || r.Spec.DomainRef.Namespace != s.rootNamespace
	}), err
}

// IsDomainGone reports whether a deleted domain and its routes no longer exist.
func (s *Store) IsDomainGone(ctx context.Context, _ *authorization.Caller, guid string) (bool, error) {
	routes, err := s.listRoutesOfDomain(ctx, guid)
	if err != nil || len(routes) > 0 {
		return false, err
	}
	_, err = s.GetDomain(ctx, guid)
	if apierrors.HasStatus(err, http.StatusNotFound) {
		return true, nil
	}
	return false, err
}

// DeleteDomain deletes a domain. Its routes are not deleted, but are no longer served.
func (s *Store) DeleteDomain(ctx context.Context, caller *authorization.Caller, domain *korifiv1alpha1.CFDomain) error {
	return deleteByName(ctx, caller, domain.DeepCopy())
}

func routeLookup() cacheLookup {
	return cacheLookup{list: &korifiv1alpha1.CFRouteList{}, noun: "route", resource: routesResource, resourceType: RouteResourceType}
}

// GetRoute returns a route that is visible to the caller.
func (s *Store) GetRoute(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFRoute, error) {
	return find[*korifiv1alpha1.CFRoute](ctx, s, caller, guid, routeLookup())
}

// ListRoutes returns the routes in the given spaces, oldest first.
func (s *Store) ListRoutes(ctx context.Context, spaces []string) ([]*korifiv1alpha1.CFRoute, error) {
	return listOfSpaces[*korifiv1alpha1.CFRoute](ctx, s, spaces, "list routes", func() client.ObjectList { return &korifiv1alpha1.CFRouteList{} })
}

// FindRoute returns the oldest route with the spec's host and path, or nil, and the space that owns the host, or "".
// The space with a host's oldest route owns the host, and routes of other spaces do not count. Callers may learn that
// another space has a route, but nothing else about it.
func (s *Store) FindRoute(ctx context.Context, spec korifiv1alpha1.CFRouteSpec) (found *korifiv1alpha1.CFRoute, space string, err error) {
	all, err := list[*korifiv1alpha1.CFRoute](ctx, s, "find the route", &korifiv1alpha1.CFRouteList{}, client.MatchingFields{byHost: route.HostKey(spec)})
	if err != nil || len(all) == 0 {
		return nil, "", err
	}
	slices.SortFunc(all, revision.CompareByAge)
	space = all[0].Namespace
	if i := slices.IndexFunc(all, func(r *korifiv1alpha1.CFRoute) bool { return r.Namespace == space && r.Spec.Path == spec.Path }); i >= 0 {
		found = all[i]
	}
	return found, space, nil
}

// NewRouteSpec returns the spec of a route with a host and a path in a domain.
func NewRouteSpec(domain *korifiv1alpha1.CFDomain, host, path string) korifiv1alpha1.CFRouteSpec {
	return korifiv1alpha1.CFRouteSpec{
		Host: host, Path: path, Protocol: korifiv1alpha1.HTTPRouteProtocol,
		DomainRef: corev1.ObjectReference{Namespace: domain.Namespace, Name: domain.Name},
	}
}

// HostReserved is Cloud Controller's error for a host that another space owns.
const HostReserved = "Routes for this host and domain have been reserved for another space"

// CreateRoute creates a route as the caller, unless a route with the same host and path exists or another space owns
// the host.
func (s *Store) CreateRoute(ctx context.Context, caller *authorization.Caller, space string, spec korifiv1alpha1.CFRouteSpec, m *payloads.Metadata) (*korifiv1alpha1.CFRoute, error) {
	if wrong := route.CheckAddress(spec); wrong != "" {
		return nil, apierrors.NewUnprocessableEntity(wrong)
	}
	taken, holder, err := s.FindRoute(ctx, spec)
	if err != nil {
		return nil, err
	}
	if holder != "" && holder != space {
		return nil, apierrors.NewUnprocessableEntity(HostReserved + "; choose another host")
	}
	if taken != nil {
		return nil, apierrors.NewUnprocessableEntity("Route already exists with host '" + spec.Host + "' and path '" + spec.Path + "'; choose another host or path")
	}
	guid := uuid.NewString()
	obj := &korifiv1alpha1.CFRoute{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: guid, Labels: map[string]string{
		korifiv1alpha1.GUIDLabel: guid, korifiv1alpha1.SpaceGUIDLabel: space,
	}}, Spec: spec}
	setMetadata(obj, m)
	return create(ctx, s, caller, obj)
}

// ChangeDestinations changes the current destinations of a route. It retries conflicts, because the route's controller
// writes the same object.
func (s *Store) ChangeDestinations(ctx context.Context, caller *authorization.Caller, obj *korifiv1alpha1.CFRoute, change func([]korifiv1alpha1.RouteDestination) []korifiv1alpha1.RouteDestination) (*korifiv1alpha1.CFRoute, error) {
	changed := obj.DeepCopy()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		to := change(slices.Clone(changed.Spec.Destinations))
		err := patchAsCaller(ctx, caller, changed, jsonObject{
			"metadata": jsonObject{"resourceVersion": changed.ResourceVersion}, "spec": jsonObject{"destinations": to},
		})
		if k8serrors.IsConflict(err) {
			return errors.Join(err, caller.Client.Get(ctx, client.ObjectKeyFromObject(obj), changed))
		}
		return err
	})
	if err != nil {
		return nil, apierrors.FromError(err, RouteResourceType)
	}
	s.WaitForCache(ctx, changed)
	return changed, nil
}

// DeleteRoute deletes a route.
func (s *Store) DeleteRoute(ctx context.Context, caller *authorization.Caller, obj *korifiv1alpha1.CFRoute) error {
	return deleteByName(ctx, caller, obj.DeepCopy())
}

// DeleteUnmappedRoute deletes a route unless it has destinations. It retries conflicts, because the route's controller
// writes the same object.
func (s *Store) DeleteUnmappedRoute(ctx context.Context, caller *authorization.Caller, obj *korifiv1alpha1.CFRoute) error {
	current := obj.DeepCopy()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if len(current.Spec.Destinations) > 0 {
			return nil
		}
		err := caller.Client.Delete(ctx, current, client.Preconditions{ResourceVersion: &current.ResourceVersion})
		if k8serrors.IsConflict(err) {
			return errors.Join(err, caller.Client.Get(ctx, client.ObjectKeyFromObject(obj), current))
		}
		return err
	})
	if k8serrors.IsNotFound(err) || err == nil {
		return nil
	}
	return apierrors.FromError(err, RouteResourceType)
}

// hostOf is the index function for byHost.
func hostOf(o client.Object) []string {
	if r, ok := o.(*korifiv1alpha1.CFRoute); ok {
		return []string{route.HostKey(r.Spec)}
	}
	return nil
}
