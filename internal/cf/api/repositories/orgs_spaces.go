// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
)

// OrgOrSpace is a namespace with the labels of an org or a space. Org is the GUID of a space's org. It is empty for an
// org.
type OrgOrSpace struct {
	GUID, Name, Org string
	Created         time.Time
	// Labels and Annotations are those of the CFOrg or CFSpace. HasObject is true if a CFOrg or CFSpace exists.
	Labels, Annotations map[string]string
	HasObject           bool
}

// ListSpaces returns the wanted spaces in which the caller may list apps. It reviews only spaces for which isWanted
// returns true, because each review costs a request.
func (s *Store) ListSpaces(ctx context.Context, caller *authorization.Caller, isWanted func(OrgOrSpace) bool) ([]OrgOrSpace, error) {
	_, spaces, err := s.listOrgsAndSpaces(ctx)
	if err != nil {
		return nil, err
	}
	return keepAllowed(ctx, caller, spaces, isWanted, appsResource)
}

// keepAllowed returns the namespaces for which isWanted returns true and in which the caller may list a resource.
func keepAllowed(ctx context.Context, caller *authorization.Caller, all []OrgOrSpace, isWanted func(OrgOrSpace) bool, resource string) ([]OrgOrSpace, error) {
	all = slices.DeleteFunc(all, func(one OrgOrSpace) bool { return !isWanted(one) })
	if len(all) == 0 {
		return nil, nil
	}
	allowed, err := caller.AllowedNamespaces(ctx, guidsOf(all), authorization.Permission{Verb: "list", Resource: resource})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(one OrgOrSpace) bool { return !allowed[one.GUID] }), nil
}

// ListOrgs returns the wanted orgs in which the caller may list spaces, and the wanted orgs of the spaces that the
// caller can see.
func (s *Store) ListOrgs(ctx context.Context, caller *authorization.Caller, isWanted func(OrgOrSpace) bool) ([]OrgOrSpace, error) {
	orgs, _, err := s.listOrgsAndSpaces(ctx)
	if err != nil {
		return nil, err
	}
	orgs = slices.DeleteFunc(orgs, func(one OrgOrSpace) bool { return !isWanted(one) })
	open, err := keepAllowed(ctx, caller, slices.Clone(orgs), isWanted, spacesResource)
	if err != nil {
		return nil, err
	}
	seen, wanted := map[string]bool{}, map[string]bool{}
	for _, org := range orgs {
		wanted[org.GUID] = true
	}
	for _, org := range open {
		seen[org.GUID] = true
	}
	spaces, err := s.ListSpaces(ctx, caller, func(space OrgOrSpace) bool { return wanted[space.Org] && !seen[space.Org] })
	for _, space := range spaces {
		seen[space.Org] = true
	}
	return slices.DeleteFunc(orgs, func(org OrgOrSpace) bool { return !seen[org.GUID] }), err
}

func guidsOf(all []OrgOrSpace) []string {
	guids := make([]string, len(all))
	for i, one := range all {
		guids[i] = one.GUID
	}
	return guids
}

// listOrgsAndSpaces returns all orgs and spaces whose namespace is not terminating. Their names are those of the CFOrg
// or CFSpace, or of the namespace if neither exists.
func (s *Store) listOrgsAndSpaces(ctx context.Context) (orgs, spaces []OrgOrSpace, err error) {
	objects, err := s.listObjects(ctx)
	if err != nil {
		return nil, nil, err
	}
	var namespaces corev1.NamespaceList
	if err := s.cache.List(ctx, &namespaces); err != nil {
		return nil, nil, fmt.Errorf("list namespaces: %w", err)
	}
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		// Terminating namespaces are omitted, because no objects can be created in them.
		if !namespace.DeletionTimestamp.IsZero() {
			continue
		}
		one := OrgOrSpace{GUID: namespace.Name, Name: namespace.Name, Created: namespace.CreationTimestamp.Time}
		if o, ok := objects[namespace.Name]; ok {
			one.Name, one.Labels, one.Annotations, one.HasObject = cmp.Or(o.Name, one.Name), o.Labels, o.Annotations, true
		}
		if namespace.Labels[korifiv1alpha1.SpaceGUIDLabel] == "" {
			orgs = append(orgs, one)
			continue
		}
		one.Org = namespace.Labels[korifiv1alpha1.OrgGUIDLabel]
		spaces = append(spaces, one)
	}
	return orgs, spaces, nil
}

// DescribeSpace returns a space and its org. Unknown fields are empty.
func (s *Store) DescribeSpace(ctx context.Context, guid string) (space, org OrgOrSpace, err error) {
	orgs, spaces, err := s.listOrgsAndSpaces(ctx)
	if i := slices.IndexFunc(spaces, func(one OrgOrSpace) bool { return one.GUID == guid }); i >= 0 {
		space = spaces[i]
	}
	if i := slices.IndexFunc(orgs, func(one OrgOrSpace) bool { return one.GUID == space.Org }); i >= 0 {
		org = orgs[i]
	}
	return space, org, err
}

// listObjects returns the names and metadata of CFOrgs and CFSpaces, keyed by their GUIDs.
func (s *Store) listObjects(ctx context.Context) (map[string]OrgOrSpace, error) {
	orgs, err := list[*korifiv1alpha1.CFOrg](ctx, s, "list orgs", &korifiv1alpha1.CFOrgList{})
	if err != nil {
		return nil, err
	}
	spaces, err := list[*korifiv1alpha1.CFSpace](ctx, s, "list spaces", &korifiv1alpha1.CFSpaceList{})
	if err != nil {
		return nil, err
	}
	all := map[string]OrgOrSpace{}
	for _, o := range orgs {
		all[o.Name] = OrgOrSpace{Name: o.Spec.DisplayName, Labels: o.Labels, Annotations: o.Annotations}
	}
	for _, o := range spaces {
		all[o.Name] = OrgOrSpace{Name: o.Spec.DisplayName, Labels: o.Labels, Annotations: o.Annotations}
	}
	return all, nil
}

// UpdateOrgOrSpace changes the labels and annotations of an org or a space. If name is not empty, it also renames the
// org or space.
func (s *Store) UpdateOrgOrSpace(ctx context.Context, caller *authorization.Caller, one OrgOrSpace, name string, m *payloads.Metadata) error {
	if !one.HasObject {
		return apierrors.NewUnprocessableEntity("expected a CFOrg or a CFSpace, found a labelled namespace without such an object; change it with kubectl")
	}
	change := jsonObject{"metadata": metadataPatch(m)}
	if name != "" {
		change["spec"] = jsonObject{"displayName": name}
	}
	var err error
	if one.Org == "" {
		_, err = patch(ctx, s, caller, &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: s.rootNamespace, Name: one.GUID}}, change)
	} else {
		_, err = patch(ctx, s, caller, &korifiv1alpha1.CFSpace{ObjectMeta: metav1.ObjectMeta{Namespace: one.Org, Name: one.GUID}}, change)
	}
	return err
}

// CreateOrg creates an org as the caller.
func (s *Store) CreateOrg(ctx context.Context, caller *authorization.Caller, name string) (OrgOrSpace, error) {
	org, err := create(ctx, s, caller, &korifiv1alpha1.CFOrg{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.rootNamespace, Name: "cf-org-" + uuid.NewString()}, Spec: korifiv1alpha1.CFOrgSpec{DisplayName: name},
	})
	return OrgOrSpace{GUID: org.Name, Name: name, Created: org.CreationTimestamp.Time}, err
}

// CreateSpace creates a space in an org as the caller.
func (s *Store) CreateSpace(ctx context.Context, caller *authorization.Caller, org, name string) (OrgOrSpace, error) {
	space, err := create(ctx, s, caller, &korifiv1alpha1.CFSpace{
		ObjectMeta: metav1.ObjectMeta{Namespace: org, Name: "cf-space-" + uuid.NewString()}, Spec: korifiv1alpha1.CFSpaceSpec{DisplayName: name},
	})
	return OrgOrSpace{GUID: space.Name, Name: name, Org: org, Created: space.CreationTimestamp.Time}, err
}

// WaitForNamespace waits until an org or a space has its namespace, so the caller's next request can use it. It returns
// false if ctx ends first.
func (s *Store) WaitForNamespace(ctx context.Context, guid string) (isThere bool, err error) {
	err = s.WatchUntil(ctx, guid, func() (bool, error) {
		orgs, spaces, err := s.listOrgsAndSpaces(ctx)
		isThere = slices.ContainsFunc(append(orgs, spaces...), func(one OrgOrSpace) bool { return one.GUID == guid })
		return isThere, err
	})
	return isThere, err
}

// DeleteOrg deletes an org and its contents.
func (s *Store) DeleteOrg(ctx context.Context, caller *authorization.Caller, guid string) error {
	return deleteByName(ctx, caller, &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: s.rootNamespace, Name: guid}})
}

// DeleteSpace deletes a space and its contents.
func (s *Store) DeleteSpace(ctx context.Context, caller *authorization.Caller, space OrgOrSpace) error {
	return deleteByName(ctx, caller, &korifiv1alpha1.CFSpace{ObjectMeta: metav1.ObjectMeta{Namespace: space.Org, Name: space.GUID}})
}

func deleteByName(ctx context.Context, caller *authorization.Caller, o client.Object) error {
	if err := caller.Client.Delete(ctx, o); err != nil {
		return apierrors.FromError(err, resourceTypeOf(o))
	}
	return nil
}
