// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/otherwriter"
)

// partialAPI has a mutating webhook of each name, and answers nothing else.
type partialAPI struct{ client.Reader }

// Get implements client.Reader.
func (partialAPI) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if found, isOfKind := into.(*admissionregistrationv1.MutatingWebhookConfiguration); isOfKind {
		found.Webhooks = make([]admissionregistrationv1.MutatingWebhook, 1)
		return nil
	}
	return errors.New("no answer")
}

// TestAWebhookThatWasFoundCounts has a later question without an answer.
func TestAWebhookThatWasFoundCounts(t *testing.T) {
	upstream := otherwriter.MOCO()
	signs := &UpstreamSigns{Upstream: upstream, Reader: partialAPI{}}
	if _, webhook := signs.read(t.Context(), time.Now()); webhook != upstream.Webhooks[len(upstream.Webhooks)-1] {
		t.Errorf("expected the webhook configuration that was found, found %q", webhook)
	}
}
