// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// ListEvents returns the events of Kubernetes about an app; none if the caller may not read events.
func (s *Store) ListEvents(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) ([]corev1.Event, error) {
	var events corev1.EventList
	err := caller.Client.List(ctx, &events, client.InNamespace(app.Namespace), client.MatchingFields{"involvedObject.name": app.Name})
	switch {
	case k8serrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, apierrors.FromError(err, "Event")
	}
	return events.Items, nil
}
