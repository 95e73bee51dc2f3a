// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// The webhook configurations in this test are those of config/webhook, but their Service does not exist.
func TestWithoutItsServiceOnlyChangesOfARevisionAreRefused(t *testing.T) {
	t.Parallel()
	s := &stage{Environment: testenv.Start(t)}
	a := app(s.CreateNamespace(t))
	a.Annotations = map[string]string{korifiv1alpha1.RevisionAnnotation: "3", "example.com/team": "shop"}
	a.Finalizers = []string{korifiv1alpha1.AppFinalizer}
	before := app(a.Namespace)
	s.ExpectCreated(t, a, before)
	s.ApplyManifest(t, "webhook/manifests.yaml")
	testenv.Eventually(t, "the webhook is called", func() error {
		if _, err := s.patched(t.Context(), a, stop); err == nil || !strings.Contains(err.Error(), "torpor-webhook") {
			return fmt.Errorf("expected a refusal that names the Service, found %w", err)
		}
		return nil
	})
	for name, row := range map[string]struct {
		patch    string
		accepted bool
	}{
		"a change to a label is allowed":                         {`{"metadata":{"labels":{"a":"b"}}}`, true},
		"a change to an unrelated annotation is allowed":         {annotate("example.com/team", "till"), true},
		"the removal of an unrelated annotation is allowed":      {`{"metadata":{"annotations":{"example.com/team":null}}}`, true},
		"a change to a finalizer is allowed":                     {`{"metadata":{"finalizers":["example.com/mine","` + korifiv1alpha1.AppFinalizer + `"]}}`, true},
		"an empty patch is allowed":                              {`{}`, true},
		"a change to the spec is refused":                        {`{"spec":{"displayName":"other"}}`, false},
		"a request to restart is refused":                        {annotate(torporv1alpha1.RestartRequestAnnotation, "r1"), false},
		"a change to the revision annotation is refused":         {annotate(korifiv1alpha1.RevisionAnnotation, "4"), false},
		"a change to the annotation of the last stop is refused": {annotate(korifiv1alpha1.LastStopRevisionAnnotation, "3"), false},
		"the removal of the revision annotation is refused":      {`{"metadata":{"annotations":{"korifi.cloudfoundry.org/app-rev":null}}}`, false},
		"the removal of all annotations is refused":              {`{"metadata":{"annotations":null}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.patched(t.Context(), a, row.patch); (err == nil) != row.accepted {
				t.Errorf("expected accepted %t, found %v", row.accepted, err)
			}
		})
	}
	if err := s.Client.Create(t.Context(), app(a.Namespace)); err == nil {
		t.Error("expected a refused creation, found it accepted")
	}
	if _, err := s.patched(t.Context(), before, `{"metadata":{"finalizers":["`+korifiv1alpha1.AppFinalizer+`"]}}`); err == nil {
		t.Error("expected a refused takeover of an app without a revision, found it accepted")
	}
	if err := s.Client.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	// When an app is deleted, its controller removes the finalizers. This must also work without the webhook's Service.
	if err := client.IgnoreNotFound(s.Client.Patch(t.Context(), a, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))); err != nil {
		t.Fatal(err)
	}
	s.WaitForDeletion(t, a)
}
