// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// DeleteInstance deletes the Pod of one instance of a process's target revision, as the caller. The instance gets a new
// Pod.
func (s *Store) DeleteInstance(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFProcess, index string) error {
	var pods corev1.PodList
	if err := caller.Client.List(ctx, &pods, client.InNamespace(app.Namespace), client.MatchingLabels{
		korifiv1alpha1.ProcessGUIDLabel: p.Name, korifiv1alpha1.VersionLabel: revision.FormatRevision(process.ReadTargetRevision(app, p)), appsv1.PodIndexLabel: index,
	}); err != nil {
		return apierrors.FromError(err, InstanceResourceType)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		// A new Pod of a StatefulSet has the same name, so the UID prevents a deletion of the new Pod.
		if err := caller.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); err != nil {
			return apierrors.FromError(err, InstanceResourceType)
		}
		return nil
	}
	return apierrors.NewNotFound(InstanceResourceType)
}
