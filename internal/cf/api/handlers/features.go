// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"slices"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
)

// appFeatures returns the features of every app. They cannot be changed.
func appFeatures() []presenter.Feature {
	return []presenter.Feature{
		{Name: "ssh", Description: "Enable SSHing into the app."},
		{Name: "revisions", Description: "Enable versioning of an application", Enabled: true},
		{Name: "service-binding-k8s", Description: "Enable k8s service bindings for the app"},
		{Name: "file-based-vcap-services", Description: "Enable file-based VCAP service bindings for the app"},
	}
}

// spaceFeatures returns the features of every space.
func spaceFeatures() []presenter.Feature {
	return []presenter.Feature{{Name: "ssh", Description: "Enable SSHing into apps in the space."}}
}

func listAppFeatures(_ context.Context, r *Request, _ *korifiv1alpha1.CFApp) (Response, error) {
	return respondList(r, resourceList[presenter.Feature]{items: appFeatures()}, unchanged)
}

func getAppFeature(_ context.Context, r *Request, _ *korifiv1alpha1.CFApp) (Response, error) {
	name := r.HTTP.PathValue("name")
	if i := indexOfFeature(appFeatures(), name); i >= 0 {
		return ok(appFeatures()[i])
	}
	// Newer clients may request features that are not in this list. These are disabled.
	return ok(presenter.Feature{Name: name})
}

func listSpaceFeatures(ctx context.Context, r *Request) (Response, error) {
	if _, err := r.getSpace(ctx, r.guid()); err != nil {
		return Response{}, err
	}
	return respondList(r, resourceList[presenter.Feature]{items: spaceFeatures()}, unchanged)
}

func getSpaceFeature(ctx context.Context, r *Request) (Response, error) {
	if _, err := r.getSpace(ctx, r.guid()); err != nil {
		return Response{}, err
	}
	i := indexOfFeature(spaceFeatures(), r.HTTP.PathValue("name"))
	if i < 0 {
		return Response{}, apierrors.NewNotFound("Feature")
	}
	return ok(spaceFeatures()[i])
}

func indexOfFeature(all []presenter.Feature, name string) int {
	return slices.IndexFunc(all, func(f presenter.Feature) bool { return f.Name == name })
}

// getSSHEnabled does not read the app, because SSH is not available for any app.
func getSSHEnabled(context.Context, *Request) (Response, error) {
	return ok(presenter.SSHEnabled{Reason: "Disabled globally"})
}
