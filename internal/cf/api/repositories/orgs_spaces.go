// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// OrgOrSpace is an org or a space: a namespace with labels. Org is empty for an org.
type OrgOrSpace struct {
	GUID, Name, Org string
	Created         time.Time
}

// ListSpaces are those in which the caller may list apps.
func (s *Store) ListSpaces(ctx context.Context, caller *authorization.Caller) ([]OrgOrSpace, error) {
	_, spaces, err := s.listOrgsAndSpaces(ctx)
	if err != nil {
		return nil, err
	}
	guids := make([]string, len(spaces))
	for i, p := range spaces {
		guids[i] = p.GUID
	}
	allowed, err := caller.AllowedNamespaces(ctx, guids, "list", Apps)
	if err != nil {
		return nil, err
	}
	var seen []OrgOrSpace
	for _, p := range spaces {
		if allowed[p.GUID] {
			seen = append(seen, p)
		}
	}
	return seen, nil
}

// ListOrgs are those with a space that the caller sees, and those in which the caller may list spaces.
func (s *Store) ListOrgs(ctx context.Context, caller *authorization.Caller) ([]OrgOrSpace, error) {
	orgs, _, err := s.listOrgsAndSpaces(ctx)
	if err != nil {
		return nil, err
	}
	spaces, err := s.ListSpaces(ctx, caller)
	if err != nil {
		return nil, err
	}
	guids := make([]string, len(orgs))
	for i, p := range orgs {
		guids[i] = p.GUID
	}
	allowed, err := caller.AllowedNamespaces(ctx, guids, "list", "cfspaces")
	if err != nil {
		return nil, err
	}
	for _, p := range spaces {
		allowed[p.Org] = true
	}
	var seen []OrgOrSpace
	for _, p := range orgs {
		if allowed[p.GUID] {
			seen = append(seen, p)
		}
	}
	return seen, nil
}

// OrgOf is the org of a space; empty if the namespace is no space.
func (s *Store) OrgOf(ctx context.Context, space string) (OrgOrSpace, error) {
	_, spaces, err := s.listOrgsAndSpaces(ctx)
	if err != nil {
		return OrgOrSpace{}, err
	}
	for _, p := range spaces {
		if p.GUID == space {
			return p, nil
		}
	}
	return OrgOrSpace{}, nil
}

// listOrgsAndSpaces are all orgs and spaces. What people call them is in CFOrgs and CFSpaces; without those it is the namespace's name.
func (s *Store) listOrgsAndSpaces(ctx context.Context) (orgs, spaces []OrgOrSpace, err error) {
	names, err := s.listDisplayNames(ctx)
	if err != nil {
		return nil, nil, err
	}
	var namespaces corev1.NamespaceList
	if err := s.cache.List(ctx, &namespaces); err != nil {
		return nil, nil, fmt.Errorf("list namespaces: %w", err)
	}
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		if !ns.DeletionTimestamp.IsZero() {
			continue
		}
		p := OrgOrSpace{GUID: ns.Name, Name: ns.Name, Created: ns.CreationTimestamp.Time}
		if name := names[ns.Name]; name != "" {
			p.Name = name
		}
		if ns.Labels[korifiv1alpha1.SpaceGUIDLabel] == "" {
			orgs = append(orgs, p)
			continue
		}
		p.Org = ns.Labels[korifiv1alpha1.OrgGUIDLabel]
		spaces = append(spaces, p)
	}
	return orgs, spaces, nil
}

func (s *Store) listDisplayNames(ctx context.Context) (map[string]string, error) {
	var orgs korifiv1alpha1.CFOrgList
	var spaces korifiv1alpha1.CFSpaceList
	if err := s.cache.List(ctx, &orgs); err != nil {
		return nil, fmt.Errorf("list orgs: %w", err)
	}
	if err := s.cache.List(ctx, &spaces); err != nil {
		return nil, fmt.Errorf("list spaces: %w", err)
	}
	names := map[string]string{}
	for i := range orgs.Items {
		names[orgs.Items[i].Name] = orgs.Items[i].Spec.DisplayName
	}
	for i := range spaces.Items {
		names[spaces.Items[i].Name] = spaces.Items[i].Spec.DisplayName
	}
	return names, nil
}
