// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// These are the resource types in errors, with the names that clients use.
const (
	AppResourceType        = "App"
	ProcessResourceType    = "Process"
	BuildResourceType      = "Build"
	PackageResourceType    = "Package"
	DropletResourceType    = "Droplet"
	DeploymentResourceType = "Deployment"
	InstanceResourceType   = "Instance"
	OrgResourceType        = "Organization"
	SpaceResourceType      = "Space"
	DomainResourceType     = "Domain"
	RouteResourceType      = "Route"
	RoleResourceType       = "Role"
	TaskResourceType       = "Task"
	ServiceResourceType    = "Service instance"
	BindingResourceType    = "Service credential binding"
	jobResourceType        = "Job"
)

// These are the Kubernetes resources for which callers need rights.
const (
	appsResource      = "cfapps"
	processesResource = "cfprocesses"
	buildsResource    = "cfbuilds"
	// The right to patch PackagesResource is also reviewed before code is uploaded.
	PackagesResource = "cfpackages"
	spacesResource   = "cfspaces"
	routesResource   = "cfroutes"
	tasksResource    = "cftasks"
	servicesResource = "cfserviceinstances"
	bindingsResource = "cfservicebindings"
)

// resourceTypeOf returns an object's resource type for errors.
func resourceTypeOf(o client.Object) string {
	switch o.(type) {
	case *korifiv1alpha1.CFProcess:
		return ProcessResourceType
	case *korifiv1alpha1.CFBuild:
		return BuildResourceType
	case *korifiv1alpha1.CFPackage:
		return PackageResourceType
	case *torporv1alpha1.CFDeployment:
		return DeploymentResourceType
	case *korifiv1alpha1.CFOrg:
		return OrgResourceType
	case *korifiv1alpha1.CFSpace:
		return SpaceResourceType
	case *korifiv1alpha1.CFDomain:
		return DomainResourceType
	case *korifiv1alpha1.CFRoute:
		return RouteResourceType
	case *korifiv1alpha1.CFTask:
		return TaskResourceType
	case *korifiv1alpha1.CFServiceInstance:
		return ServiceResourceType
	case *korifiv1alpha1.CFServiceBinding:
		return BindingResourceType
	default:
		return AppResourceType
	}
}

// cacheLookup describes a lookup of objects of one kind, and the right that a caller needs to see them.
type cacheLookup struct {
	list client.ObjectList
	// noun is the name of the kind in logged errors.
	noun                   string
	resource, resourceType string
	// space limits the lookup to one space. everySpace means all spaces.
	space string
}

// everySpace is the space of a lookup by GUID in all spaces.
const everySpace = ""

// find returns the object with a GUID if the caller may get it, or else a not-found error. GUIDs are only unique within
// a namespace, so an object in another space must not hide the caller's object. If the caller may get several objects,
// find returns the oldest, because an object with a copied GUID is newer.
func find[T client.Object](ctx context.Context, s *Store, caller *authorization.Caller, guid string, l cacheLookup) (T, error) {
	var none T
	found, err := list[T](ctx, s, "find the "+l.noun, l.list, client.InNamespace(l.space), client.MatchingFields{byGUID: guid})
	if err != nil {
		return none, err
	}
	return chooseVisible(ctx, s, caller, found, l)
}

// chooseVisible returns the oldest of the objects that the caller may get, or a not-found error.
func chooseVisible[T client.Object](ctx context.Context, s *Store, caller *authorization.Caller, found []T, l cacheLookup) (T, error) {
	slices.SortFunc(found, revision.CompareByAge)
	for _, object := range found {
		if err := s.checkVisible(ctx, caller, object.GetNamespace(), l); err == nil || len(found) == 1 {
			return object, err
		}
	}
	var none T
	return none, apierrors.NewNotFound(l.resourceType)
}

// list returns the cached objects that match the options. Errors begin with the argument what.
func list[T client.Object](ctx context.Context, s *Store, what string, into client.ObjectList, options ...client.ListOption) ([]T, error) {
	if err := s.cache.List(ctx, into, options...); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var found []T
	err := meta.EachListItem(into, func(item runtime.Object) error {
		if object, ok := item.(T); ok {
			found = append(found, object)
		}
		return nil
	})
	return found, err
}

// listOfApp returns the objects of an app, oldest first. They are visible to every caller that may see the app.
func listOfApp[T client.Object](ctx context.Context, s *Store, app *korifiv1alpha1.CFApp, what string, into client.ObjectList) ([]T, error) {
	found, err := list[T](ctx, s, what, into, client.InNamespace(app.Namespace), client.MatchingFields{byApp: app.Name})
	slices.SortFunc(found, revision.CompareByAge)
	return found, err
}

// listInSpaces returns the objects in the given spaces in no particular order. The result must not be changed, because
// it shares objects with the cache.
func listInSpaces[T any](indexer toolscache.Indexer, spaces []string) ([]T, error) {
	var found []T
	for _, space := range spaces {
		objects, err := indexer.ByIndex(toolscache.NamespaceIndex, space)
		if err != nil {
			return nil, fmt.Errorf("list the objects in space %s: %w", space, err)
		}
		found = slices.Grow(found, len(objects))
		for _, o := range objects {
			if object, ok := o.(T); ok {
				found = append(found, object)
			}
		}
	}
	return found, nil
}

// checkVisible returns a not-found error if the caller may not get the resource in a namespace. A 403 would reveal
// which GUIDs exist.
func (s *Store) checkVisible(ctx context.Context, caller *authorization.Caller, namespace string, l cacheLookup) error {
	ok, err := caller.May(ctx, authorization.Permission{Namespace: namespace, Verb: "get", Resource: l.resource})
	if err != nil {
		return err
	}
	if !ok {
		return apierrors.NewNotFound(l.resourceType)
	}
	return nil
}

// getLive reads an object from the API server with the caller's own rights.
func getLive(ctx context.Context, caller *authorization.Caller, key client.ObjectKey, into client.Object) error {
	if err := caller.Client.Get(ctx, key, into); err != nil {
		return apierrors.FromError(err, resourceTypeOf(into))
	}
	return nil
}

// create creates an object as the caller, and waits until the cache contains it. With options, such as a dry run, it
// does not wait.
func create[T client.Object](ctx context.Context, s *Store, caller *authorization.Caller, object T, options ...client.CreateOption) (T, error) {
	if err := caller.Client.Create(ctx, object, options...); err != nil {
		return object, apierrors.FromError(err, resourceTypeOf(object))
	}
	if len(options) == 0 {
		s.WaitForCache(ctx, object)
	}
	return object, nil
}

// jsonObject is a part of a JSON merge patch.
type jsonObject map[string]any

// patch patches an object as the caller, and waits until the cache contains the change. The object must not be shared
// with the cache.
func patch[T client.Object](ctx context.Context, s *Store, caller *authorization.Caller, object T, change jsonObject) (T, error) {
	if err := patchAsCaller(ctx, caller, object, change); err != nil {
		return object, apierrors.FromError(err, resourceTypeOf(object))
	}
	s.WaitForCache(ctx, object)
	return object, nil
}

// patchCopy calls patch with a copy of a cached object. It does nothing if the change is empty.
func patchCopy[T client.Object](ctx context.Context, s *Store, caller *authorization.Caller, object T, change jsonObject) (T, error) {
	changed, ok := object.DeepCopyObject().(T)
	if len(change) == 0 || !ok {
		return object, nil
	}
	return patch(ctx, s, caller, changed, change)
}

// specAndMetadata returns a patch of the spec, labels and annotations. The patch is empty if neither is given.
func specAndMetadata(spec jsonObject, m *payloads.Metadata) jsonObject {
	change := jsonObject{}
	if len(spec) > 0 {
		change["spec"] = spec
	}
	if !m.IsEmpty() {
		change["metadata"] = metadataPatch(m)
	}
	return change
}

// patchAsCaller sends a merge patch as the caller. It adds no resource version, so the patch also applies if other
// fields have changed concurrently.
func patchAsCaller(ctx context.Context, caller *authorization.Caller, object client.Object, change jsonObject) error {
	raw, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	return caller.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, raw))
}

// UpdateMetadata changes the labels and annotations of an object as the caller.
func UpdateMetadata[T client.Object](ctx context.Context, s *Store, caller *authorization.Caller, object T, m *payloads.Metadata) (T, error) {
	return patchCopy(ctx, s, caller, object, specAndMetadata(nil, m))
}

// newOrderedGUID returns a GUID whose order reflects its creation time, even within the same second.
func newOrderedGUID() string { return uuid.Must(uuid.NewV7()).String() }

// ownedByApp returns the metadata of an object that is deleted together with its app.
func ownedByApp(app *korifiv1alpha1.CFApp, name string) metav1.ObjectMeta {
	kind := korifiv1alpha1.CFAppKind()
	return metav1.ObjectMeta{
		Namespace: app.Namespace, Name: name,
		Labels: map[string]string{
			korifiv1alpha1.GUIDLabel: name, korifiv1alpha1.AppGUIDLabel: app.Name, korifiv1alpha1.SpaceGUIDLabel: app.Namespace,
		},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: app.Name, UID: app.UID}},
	}
}

// listOfSpaces returns the objects in the given spaces, oldest first.
func listOfSpaces[T client.Object](ctx context.Context, s *Store, spaces []string, what string, newList func() client.ObjectList) ([]T, error) {
	var all []T
	for _, space := range spaces {
		found, err := list[T](ctx, s, what, newList(), client.InNamespace(space))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, revision.CompareByAge)
	return all, nil
}
