// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// skippedUntil is a future end of a skip.
const skippedUntil = "2099-01-01T00:00:00Z"

// TestSlumberAuthorIsRecorded changes a Slumber as several users, some with another user's name. The requester of
// its stops must be the Slumber and its last author; a skipped object must be started by the user who skips it.
func TestSlumberAuthorIsRecorded(t *testing.T) {
	t.Parallel()
	h := newManagedHub(t)
	forgery := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, torporv1alpha1.RequestedByAnnotation, forged)
	build := func(name string) *torporv1alpha1.Slumber {
		s, _ := slumbers().build(t, h.hub, name).(*torporv1alpha1.Slumber)
		s.Annotations = map[string]string{torporv1alpha1.RequestedByAnnotation: forged}
		s.Spec.Windows = []torporv1alpha1.SlumberWindow{{Sleep: "0 0 * * *", Wake: "0 12 * * *"}, {Sleep: "0 12 * * *", Wake: "59 23 * * *"}, {Sleep: "59 23 * * *", Wake: "0 0 * * *"}}
		s.Spec.Waves[0].Targets[0].Kind = "Deployment"
		return s
	}
	testenv.Eventually(t, "the API server records the creator of a Slumber", func() error {
		tried := build("tried")
		err := h.clientOf(t, "alice").Create(t.Context(), tried, client.DryRunAll)
		return testenv.ErrorIf(err != nil || tried.Annotations[torporv1alpha1.RequestedByAnnotation] != "alice", "found %v (%v)", tried.Annotations, err)
	})
	s := build("nights")
	s.Spec.Suspend = true
	testenv.ExpectNoError(t, h.clientOf(t, "alice").Create(t.Context(), s))
	for _, row := range []struct{ who, patch, want string }{
		{"bob", forgery, "alice"},
		{"bob", `{"metadata":{"labels":{"a":"b"}}}`, "alice"},
		{"bob", `{"metadata":{"annotations":null}}`, "alice"},
		{"carol", `{"spec":{"suspend":false}}`, "carol"},
	} {
		testenv.ExpectNoError(t, h.clientOf(t, row.who).Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(row.patch)), client.FieldOwner(forged)))
		testenv.ExpectEqual(t, row.patch+": the author", row.want, s.Annotations[torporv1alpha1.RequestedByAnnotation])
	}

	web := deployments().build(t, h.hub, "web")
	h.ExpectCreated(t, web)
	h.startManager(t)
	h.WaitFor(t, "the Slumber stops the object", web, func() error {
		stops := web.GetAnnotations()[torporv1alpha1.SlumberAnnotationPrefix+s.Name]
		return testenv.ErrorIf(stops == "", "found %v", web.GetAnnotations())
	})
	h.WaitForEvent(t, metav1.NamespaceDefault, fieldswitch.EventStopped, "asked for by Slumber nights of carol")
	testenv.ExpectNoError(t, h.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s))
	testenv.ExpectEqual(t, "the author after writes of the manager", "carol", s.Annotations[torporv1alpha1.RequestedByAnnotation])

	skip := map[string]string{torporv1alpha1.SkipUntilAnnotation: skippedUntil, torporv1alpha1.SkipUntilNotedAnnotation: skippedUntil + " by " + forged}
	testenv.ExpectNoError(t, h.clientOf(t, "dave").Patch(t.Context(), web, mergePatch(t, annotated(nil, skip)), client.FieldOwner(forged)))
	testenv.ExpectEqual(t, "the note of the skip", skippedUntil+" by dave", web.GetAnnotations()[torporv1alpha1.SkipUntilNotedAnnotation])
	h.WaitFor(t, "the Slumber starts it", web, func() error {
		var scheduled torporv1alpha1.ScheduledStop
		text := web.GetAnnotations()[torporv1alpha1.SlumberAnnotationPrefix+s.Name]
		err := json.Unmarshal([]byte(text), &scheduled)
		return testenv.ErrorIf(err != nil || len(scheduled.Stops) != 1 || scheduled.Stops[0].StartedBy != "dave", "found %s (%v)", text, err)
	})
}

// TestFalseSlumberAuthorIsRefusedWithoutThePolicy tests an API server without the policy that records the author of
// a Slumber.
func TestFalseSlumberAuthorIsRefusedWithoutThePolicy(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	s := slumbers().build(t, h, "nights")
	h.ExpectCreated(t, s)
	bob := h.clientOf(t, "bob")
	try := func(who string) error {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, torporv1alpha1.RequestedByAnnotation, who)
		return bob.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	testenv.Eventually(t, "the policy is applied", func() error {
		return testenv.ErrorIf(try(forged) == nil, "another user's name is accepted")
	})
	testenv.ExpectRefused(t, try(forged), "expected bob, the user of the request, or the earlier value")
	testenv.ExpectNoError(t, try("bob"))
	another := slumbers().build(t, h, "another")
	another.SetAnnotations(map[string]string{torporv1alpha1.RequestedByAnnotation: forged})
	testenv.ExpectRefused(t, bob.Create(t.Context(), another), "expected bob, the user of the request")
}
