// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// FuzzReadAnnotations reads annotations of stops that a user has written.
func FuzzReadAnnotations(f *testing.F) {
	for _, text := range []string{
		`{"slumber":"nights","stops":[{"since":"2026-01-01T00:00:00Z","by":"x"}]}`, `{"slumber":"other"}`, `[]`, `8h`, `2099-01-01T00:00:00Z`, `8h by boss`, `-1h by `, ` by `,
	} {
		f.Add(text)
	}
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		annotations := map[string]string{
			torporv1alpha1.SlumberAnnotationPrefix + "nights": text, torporv1alpha1.SkipUntilAnnotation: text,
			torporv1alpha1.UntilAnnotation: "8h", torporv1alpha1.UntilNotedAnnotation: text,
		}
		for _, stop := range ReadScheduled(annotations) {
			if stop.Slumber != "nights" {
				t.Errorf("expected the stops of the Slumber of the key, found %+v", stop)
			}
		}
		FindHolding(ReadScheduled(annotations), annotations, now)
		if by := ReadAuthor(annotations, torporv1alpha1.UntilAnnotation); by != "" && "8h by "+by != text {
			t.Errorf("%q: expected the author of this very end, found %q", text, by)
		}
		_, skipErr := ReadSkip(annotations)
		if until, err := ParseUntil(text, now); err == nil && until.IsZero() && skipErr == nil {
			t.Errorf("%q: expected a time, found none", text)
		}
	})
}
