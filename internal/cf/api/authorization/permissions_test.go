// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reviewer is a client that grants access to some namespaces and counts the reviews.
type reviewer struct {
	client.Client
	open  map[string]bool
	asked atomic.Int32
}

func (r *reviewer) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	review, ok := obj.(*authorizationv1.SelfSubjectAccessReview)
	if !ok {
		return fmt.Errorf("expected a review, found %T", obj)
	}
	r.asked.Add(1)
	review.Status.Allowed = r.open[review.Spec.ResourceAttributes.Namespace]
	return nil
}

// Listing a thousand spaces reviews each space once in ten seconds, and immediately after a role was granted.
func TestAThousandSpacesAreReviewedOnce(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1, 0))
	api := &reviewer{open: map[string]bool{"space-1": true, "space-2": true, "space-3": true}}
	caller := &Caller{Client: api, permissions: cache.NewLRUExpireCacheWithClock(maxAnswers, clock)}
	var spaces []string
	for i := range 1000 {
		spaces = append(spaces, fmt.Sprint("space-", i))
	}
	list := func(wantSpaces int, wantReviews int32) {
		t.Helper()
		api.asked.Store(0)
		found, err := caller.AllowedNamespaces(t.Context(), spaces, Permission{Verb: "list", Resource: "cfapps"})
		if asked := api.asked.Load(); err != nil || len(found) != wantSpaces || asked != wantReviews {
			t.Errorf("expected %d spaces after %d reviews, found %d after %d (%v)", wantSpaces, wantReviews, len(found), asked, err)
		}
	}
	list(3, 1001)
	clock.Step(answerTTL - time.Second)
	list(3, 0)
	api.open["space-4"] = true
	caller.ForgetAnswers()
	list(4, 1001)
}
