// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
)

// stumblingAPI fails the first call, and answers later ones with a Deployment that has ready Pods.
type stumblingAPI struct {
	client.Reader

	asked int
}

// Get implements client.Reader.
func (s *stumblingAPI) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if s.asked++; s.asked == 1 {
		return k8serrors.NewTooManyRequests("busy", 1)
	}
	if found, isOfKind := into.(*appsv1.Deployment); isOfKind {
		found.Status.ReadyReplicas = 1
	}
	return nil
}

// TestFailedReadsAreRepeatedSoon has an API server that rejects the first call as too busy.
func TestFailedReadsAreRepeatedSoon(t *testing.T) {
	api, now := &stumblingAPI{}, time.Now()
	signs := &UpstreamSigns{Upstream: otherwriter.MOCO(), Reader: api}
	signs.read(t.Context(), now)
	asked := api.asked
	signs.read(t.Context(), now.Add(signsRetry/2))
	if api.asked != asked {
		t.Errorf("expected %d questions until the next look, found %d", asked, api.asked)
	}
	signs.read(t.Context(), now.Add(signsRetry))
	if api.asked == asked {
		t.Error("expected another look after a while, found none")
	}
	asked = api.asked
	if signs.read(t.Context(), now.Add(2*signsRetry)); api.asked != asked {
		t.Errorf("expected a look that was answered to count for %s, found another", signsInterval)
	}
}

// partialAPI returns a mutating webhook configuration for every name, and an error for every other read.
type partialAPI struct{ client.Reader }

// Get implements client.Reader.
func (partialAPI) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if found, isOfKind := into.(*admissionregistrationv1.MutatingWebhookConfiguration); isOfKind {
		found.Webhooks = make([]admissionregistrationv1.MutatingWebhook, 1)
		return nil
	}
	return errors.New("no answer")
}

// TestFoundWebhookCountsAfterAFailedRead finds a webhook configuration of upstream before another read fails.
func TestFoundWebhookCountsAfterAFailedRead(t *testing.T) {
	upstream := otherwriter.MOCO()
	signs := &UpstreamSigns{Upstream: upstream, Reader: partialAPI{}}
	if _, webhook := signs.read(t.Context(), time.Now()); webhook != upstream.Webhooks[len(upstream.Webhooks)-1] {
		t.Errorf("expected the webhook configuration that was found, found %q", webhook)
	}
}
