// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// slowReviewer grants each right, after a tenth of a second.
type slowReviewer struct {
	authorizationclient.AuthorizationV1Interface
	authorizationclient.SelfSubjectAccessReviewInterface
}

func (s slowReviewer) SelfSubjectAccessReviews() authorizationclient.SelfSubjectAccessReviewInterface {
	return s
}

// Create implements SelfSubjectAccessReviewInterface.
func (slowReviewer) Create(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(100 * time.Millisecond):
	}
	answer := review.DeepCopy()
	answer.Status.Allowed = true
	return answer, nil
}

// TestManyRightsAreLearntInSeveralRounds has more reviews than a round has time for, as a group of many namespaces
// has.
func TestManyRightsAreLearntInSeveralRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var found []State
		observeRights(ctx, slowReviewer{}, time.Hour, make([]authorizationv1.ResourceAttributes, 400), func(status Status) {
			if found = append(found, status.State); status.State == True || len(found) == 3 {
				cancel()
			}
		})
		if len(found) != 2 || found[0] != Unknown || found[1] != True {
			t.Errorf("expected a round that is not enough and one that is, found %v", found)
		}
	})
}
