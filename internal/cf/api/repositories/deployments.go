// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
)

// GetDeployment returns a deployment that is visible to the caller through its app.
func (s *Store) GetDeployment(ctx context.Context, caller *authorization.Caller, guid string) (*torporv1alpha1.CFDeployment, error) {
	return find[*torporv1alpha1.CFDeployment](ctx, s, caller, guid, cacheLookup{
		list: &torporv1alpha1.CFDeploymentList{}, noun: "deployment", resource: appsResource, resourceType: DeploymentResourceType,
	})
}

// GetLiveDeployment reads a deployment from the API server with the caller's own rights.
func (s *Store) GetLiveDeployment(ctx context.Context, caller *authorization.Caller, guid string) (*torporv1alpha1.CFDeployment, error) {
	cached, err := s.GetDeployment(ctx, caller, guid)
	if err != nil {
		return nil, err
	}
	live := &torporv1alpha1.CFDeployment{}
	return live, getLive(ctx, caller, client.ObjectKeyFromObject(cached), live)
}

// ListDeployments returns the deployments in the given spaces, oldest first.
func (s *Store) ListDeployments(ctx context.Context, spaces []string) ([]*torporv1alpha1.CFDeployment, error) {
	return listOfSpaces[*torporv1alpha1.CFDeployment](ctx, s, spaces, "list deployments", func() client.ObjectList { return &torporv1alpha1.CFDeploymentList{} })
}

// ListDeploymentsOfApp returns the deployments of an app, oldest first. They are visible to every caller that may see
// the app.
func (s *Store) ListDeploymentsOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*torporv1alpha1.CFDeployment, error) {
	return listOfApp[*torporv1alpha1.CFDeployment](ctx, s, app, "list deployments", &torporv1alpha1.CFDeploymentList{})
}

// CreateDeploymentMessage describes a deployment to create.
type CreateDeploymentMessage struct {
	App      *korifiv1alpha1.CFApp
	Spec     torporv1alpha1.CFDeploymentSpec
	Metadata *payloads.Metadata
}

// CreateDeployment requests a new revision of an app next to the current one. With client.DryRunAll, it only checks
// whether the request would be rejected.
func (s *Store) CreateDeployment(ctx context.Context, caller *authorization.Caller, message CreateDeploymentMessage, options ...client.CreateOption) (*torporv1alpha1.CFDeployment, error) {
	deployment := &torporv1alpha1.CFDeployment{ObjectMeta: ownedByApp(message.App, newOrderedGUID()), Spec: message.Spec}
	setMetadata(deployment, message.Metadata)
	return create(ctx, s, caller, deployment, options...)
}

// CancelDeployment requests the cancellation of a deployment.
func (s *Store) CancelDeployment(ctx context.Context, caller *authorization.Caller, deployment *torporv1alpha1.CFDeployment) (*torporv1alpha1.CFDeployment, error) {
	return patch(ctx, s, caller, deployment.DeepCopy(), jsonObject{"spec": jsonObject{"cancelled": true}})
}

// ContinueDeployment lets a canary proceed past the given number of steps.
func (s *Store) ContinueDeployment(ctx context.Context, caller *authorization.Caller, deployment *torporv1alpha1.CFDeployment, steps int32) error {
	_, err := patch(ctx, s, caller, deployment.DeepCopy(), jsonObject{"spec": jsonObject{"continuedSteps": steps}})
	return err
}
