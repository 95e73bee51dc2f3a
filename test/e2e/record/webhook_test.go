// SPDX-License-Identifier: Apache-2.0

package record

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestAStopPassesWhileNoManagerAnswersTheWebhook stops a cluster while the API server's calls of the webhook fail:
// the request must succeed, and its requester must be unknown.
func TestAStopPassesWhileNoManagerAnswersTheWebhook(t *testing.T) {
	t.Parallel()
	h := newOlderManagedHub(t)
	manager := h.startManager(t)
	h.waitUntilNoted(t)
	k := clusterDeployments()
	noted, unnoted := k.build(t, h.hub, "noted"), k.build(t, h.hub, "unnoted")
	h.ExpectCreated(t, noted, unnoted)
	stop := func(obj client.Object) {
		testenv.ExpectNoError(t, h.clientOf(t, "alice").Patch(t.Context(), obj, mergePatch(t, k.stop), client.FieldOwner(anotherProgram)))
	}
	stop(noted)
	manager.KillAtOnce(t)
	stop(unnoted)
	if found := unnoted.GetAnnotations()[torporv1alpha1.RequestedByAnnotation]; found != "" {
		t.Errorf("expected no note while no manager runs, found %q", found)
	}
	h.startManager(t)
	for obj, who := range map[client.Object]string{noted: "alice", unnoted: "unknown (field manager " + anotherProgram + ")"} {
		h.WaitFor(t, obj.GetName()+" is recorded", obj, func() error {
			stops := k.records(obj)[0]
			return testenv.ErrorIf(len(stops) != 1 || stops[0].By != who, "expected one stop by %s, found %+v", who, stops)
		})
	}
	h.WaitForEvent(t, metav1.NamespaceDefault, stoprecord.EventRequesterUnknown, "found unknown (field manager "+anotherProgram+")")
}

// TestAStopPassesWhileTheWebhookHangs replaces the webhook with a server that accepts connections but never answers.
func TestAStopPassesWhileTheWebhookHangs(t *testing.T) {
	t.Parallel()
	h := newOlderHub(t)
	questions := &atomic.Int32{}
	h.installRecordWebhooks(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // The server notices that a client has disconnected only after the body was read.
		questions.Add(1)
		<-r.Context().Done()
	}))
	k := clusterDeployments()
	testenv.Eventually(t, "the webhook is called", func() error {
		tried := k.build(t, h, "tried")
		merge(t, tried, k.stop)
		err := h.Client.Create(t.Context(), tried, client.DryRunAll)
		return testenv.ErrorIf(err != nil || questions.Load() == 0, "found no call (%v)", err)
	})
	cd := k.build(t, h, "unnoted")
	h.ExpectCreated(t, cd)
	h.patch(t, "alice", cd, k.stop)
	if found := cd.GetAnnotations()[torporv1alpha1.RequestedByAnnotation]; found != "" || !k.isStopped(cd) {
		t.Errorf("expected a stop without a note, found %q in %+v", found, cd)
	}
}
