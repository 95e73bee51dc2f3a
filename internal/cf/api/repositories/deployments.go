// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// DeploymentResourceType is what a caller calls a CFDeployment.
const DeploymentResourceType = "Deployment"

// GetDeployment is one that the caller may see, who may see its app.
func (s *Store) GetDeployment(ctx context.Context, caller *authorization.Caller, guid string) (*torporv1alpha1.CFDeployment, error) {
	var found torporv1alpha1.CFDeploymentList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return nil, fmt.Errorf("find the deployment: %w", err)
	}
	if len(found.Items) == 0 {
		return nil, apierrors.NewNotFound(DeploymentResourceType)
	}
	return &found.Items[0], s.checkVisible(ctx, caller, found.Items[0].Namespace, Apps, DeploymentResourceType)
}

// GetLiveDeployment is a deployment as it is this moment, read with the caller's own rights.
func (s *Store) GetLiveDeployment(ctx context.Context, caller *authorization.Caller, guid string) (*torporv1alpha1.CFDeployment, error) {
	cached, err := s.GetDeployment(ctx, caller, guid)
	if err != nil {
		return nil, err
	}
	live := &torporv1alpha1.CFDeployment{}
	if err := caller.Client.Get(ctx, client.ObjectKeyFromObject(cached), live); err != nil {
		return nil, apierrors.FromError(err, DeploymentResourceType)
	}
	return live, nil
}

// ListDeployments are the deployments of some spaces, the oldest first.
func (s *Store) ListDeployments(ctx context.Context, spaces []string) ([]*torporv1alpha1.CFDeployment, error) {
	var all []*torporv1alpha1.CFDeployment
	for _, space := range spaces {
		var found torporv1alpha1.CFDeploymentList
		if err := s.cache.List(ctx, &found, client.InNamespace(space)); err != nil {
			return nil, fmt.Errorf("list deployments: %w", err)
		}
		all = append(all, pointersTo(found.Items)...)
	}
	sortByAge(all)
	return all, nil
}

// CreateDeployment asks for a new revision of an app beside the old one.
func (s *Store) CreateDeployment(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, spec torporv1alpha1.CFDeploymentSpec) (*torporv1alpha1.CFDeployment, error) {
	d := &torporv1alpha1.CFDeployment{ObjectMeta: ownedByApp(app, uuid.NewString()), Spec: spec}
	if err := caller.Client.Create(ctx, d); err != nil {
		return nil, apierrors.FromError(err, DeploymentResourceType)
	}
	s.WaitForCache(ctx, d)
	return d, nil
}

// CancelDeployment takes a deployment back.
func (s *Store) CancelDeployment(ctx context.Context, caller *authorization.Caller, d *torporv1alpha1.CFDeployment) error {
	return s.patchDeployment(ctx, caller, d, jsonObject{"cancelled": true})
}

// ContinueDeployment lets a canary pass as many steps.
func (s *Store) ContinueDeployment(ctx context.Context, caller *authorization.Caller, d *torporv1alpha1.CFDeployment, steps int32) error {
	return s.patchDeployment(ctx, caller, d, jsonObject{"continuedSteps": steps})
}

func (s *Store) patchDeployment(ctx context.Context, caller *authorization.Caller, d *torporv1alpha1.CFDeployment, spec jsonObject) error {
	d = d.DeepCopy()
	if err := patchAsCaller(ctx, caller, d, jsonObject{"spec": spec}); err != nil {
		return apierrors.FromError(err, DeploymentResourceType)
	}
	s.WaitForCache(ctx, d)
	return nil
}
