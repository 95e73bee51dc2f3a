// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// changeMetadata changes the labels and annotations of an object that is visible to the caller.
func changeMetadata[T client.Object](ctx context.Context, r *Request, object T, body payloads.MetadataUpdate) (T, error) {
	if err := body.Metadata.Validate(); err != nil {
		return object, err
	}
	return repositories.UpdateMetadata(ctx, r.Store, r.Caller, object, body.Metadata)
}

// withMetadata returns a Handler that changes only the labels and annotations of the object that find returns.
func withMetadata[T client.Object, V any](find func(ctx context.Context, r *Request) (T, error), show func(base string, object T) V) Handler {
	return withBody(func(ctx context.Context, r *Request, body payloads.MetadataUpdate) (Response, error) {
		object, err := find(ctx, r)
		if err == nil {
			object, err = changeMetadata(ctx, r, object, body)
		}
		return present(r, show, object, err)
	})
}

// ofPath returns a function that calls a getter of the Store with the GUID in the request's path.
func ofPath[T any](get func(s *repositories.Store, ctx context.Context, caller *authorization.Caller, guid string) (T, error)) func(context.Context, *Request) (T, error) {
	return func(ctx context.Context, r *Request) (T, error) { return get(r.Store, ctx, r.Caller, r.guid()) }
}

func findDomainOfPath(ctx context.Context, r *Request) (*korifiv1alpha1.CFDomain, error) {
	return r.Store.GetDomain(ctx, r.guid())
}

func findDroplet(ctx context.Context, r *Request) (*korifiv1alpha1.CFBuild, error) {
	return requireStaged(r.Store.GetBuild(ctx, r.Caller, r.guid(), repositories.DropletResourceType))
}

// refuseBuildMetadata rejects labels and annotations of builds, as Korifi does. A build and its droplet are the same
// object, whose metadata belongs to the droplet.
func refuseBuildMetadata(context.Context, *Request) (Response, error) {
	return Response{}, apierrors.NewUnprocessableEntity("Labels and annotations are not supported for builds; change the labels and annotations of the droplet, which has the build's GUID")
}
