// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// emptyCache lists no objects.
type emptyCache struct{ client.Client }

// List implements client.Reader.
func (emptyCache) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestDeletedSlumberReleasesObjectsMissingFromTheCache has a Slumber that is deleted as soon as it has stopped
// clusters, which are not in the cache yet. Nothing else would ever start them.
func TestDeletedSlumberReleasesObjectsMissingFromTheCache(t *testing.T) {
	s := newStory(t)
	stop := s.startManager(t)
	s.moveTo(t, beforeNight().Add(61*time.Minute))
	s.waitFor(t, "the apps are stopped first", torporv1alpha1.SlumberFallingAsleep, "blog", "shop")
	stop()

	c := Controller{client: emptyCache{s.Client}, live: s.Client, Clock: s.clock}
	if again, err := c.finalize(t.Context(), s.slumber); err != nil || again != 0 {
		t.Errorf("expected nothing to be left, found another try after %s, and the error %v", again, err)
	}
	s.waitFor(t, "nothing is stopped any more", torporv1alpha1.SlumberFallingAsleep)
}
