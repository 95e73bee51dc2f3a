// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// endedStop is a stop with an end. The schema of the stopped object drops the record of stops.
type endedStop struct {
	env *testenv.Environment
	obj client.Object
	// controller stores the record in its annotation, in this field.
	controller, field string
	// spec and annotations request the stop in a merge patch.
	spec, annotations map[string]any
	// policy is the manifest that records requesters in the annotation noted. Both are empty if a webhook does.
	policy, noted string
	// keepsSwitch is true if the switch still requests the stop after its end.
	keepsSwitch bool
	// whileStopped is called during the stop.
	whileStopped func()
}

// expectEnds stops the object as one user, and sets an end as another user. It expects that the stop ends at this time.
func (s endedStop) expectEnds(t *testing.T) {
	t.Helper()
	if s.policy != "" {
		s.env.ApplyManifest(t, s.policy)
		s.waitForPolicy(t)
	}
	asked := maps.Clone(s.annotations)
	maps.Copy(asked, map[string]any{torporv1alpha1.UntilAnnotation: "8h", torporv1alpha1.ReasonAnnotation: "no budget"})
	testenv.ExpectNoError(t, s.patchAs(t, "alice", asked, s.spec))
	s.waitForRecord(t, "the stop is recorded", func(r torporv1alpha1.StopRecord) bool {
		isEndKnown := r.RequestedUntil == "8h" && r.Until != nil && r.Until.Sub(r.Since.Time) >= 8*time.Hour
		return r.By == "alice" && r.Reason == "no budget" && isEndKnown && r.Requested && r.EndedAt == nil
	})
	s.whileStopped()
	testenv.ExpectNoError(t, s.patchAs(t, "bob", map[string]any{torporv1alpha1.UntilAnnotation: "1s"}, nil))
	s.waitForRecord(t, "the stop ends automatically", func(r torporv1alpha1.StopRecord) bool {
		isEndOfBob := r.UntilBy == "bob" && r.RequestedUntil == "1s"
		return r.By == "alice" && isEndOfBob && r.EndedAt != nil && r.StartedBy == torporv1alpha1.UntilAnnotation && r.Requested == s.keepsSwitch
	})
	for _, left := range []string{torporv1alpha1.UntilAnnotation, torporv1alpha1.ReasonAnnotation} {
		if value, isLeft := s.obj.GetAnnotations()[left]; isLeft != s.keepsSwitch {
			t.Errorf("expected %s to be removed with the switch, found %q", left, value)
		}
	}
}

// patchAs changes the object as a user with all permissions.
func (s endedStop) patchAs(t *testing.T, who string, annotations, spec map[string]any, opts ...client.PatchOption) error {
	t.Helper()
	c, err := client.New(s.env.ImpersonateUser(who, "system:masters"), client.Options{Scheme: s.env.Client.Scheme(), Mapper: s.env.Client.RESTMapper()})
	testenv.ExpectNoError(t, err)
	change := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	if spec != nil {
		change["spec"] = spec
	}
	patch, err := json.Marshal(change)
	testenv.ExpectNoError(t, err)
	return c.Patch(t.Context(), s.obj, client.RawPatch(client.Merge.Type(), patch), opts...)
}

// waitForPolicy waits until the API server records requesters, which takes a moment after the policy is created.
func (s endedStop) waitForPolicy(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "requesters are recorded", func() error {
		if err := s.patchAs(t, "alice", s.annotations, s.spec, client.DryRunAll); err != nil {
			return err
		}
		return testenv.ErrorIf(s.obj.GetAnnotations()[s.noted] != "alice", "found %v", s.obj.GetAnnotations())
	})
	testenv.ExpectNoError(t, s.env.Client.Get(t.Context(), client.ObjectKeyFromObject(s.obj), s.obj))
}

// waitForRecord waits until the newest stop in the annotation is as expected.
func (s endedStop) waitForRecord(t *testing.T, what string, holds func(torporv1alpha1.StopRecord) bool) {
	t.Helper()
	s.env.WaitFor(t, what, s.obj, func() error {
		text := s.obj.GetAnnotations()[torporv1alpha1.StatusAnnotationPrefix+s.controller]
		remembered := map[string]json.RawMessage{}
		var stops []torporv1alpha1.StopRecord
		if err := json.Unmarshal([]byte(text), &remembered); err != nil {
			return fmt.Errorf("read the annotation of %s: %w", s.controller, err)
		}
		if err := json.Unmarshal(remembered[s.field], &stops); err != nil {
			return fmt.Errorf("read the records in %s of %q: %w", s.field, text, err)
		}
		if len(stops) == 0 {
			return fmt.Errorf("expected a record in %s, found %q", s.field, text)
		}
		return testenv.ErrorIf(!holds(stops[0]), "found %+v", stops[0])
	})
}
