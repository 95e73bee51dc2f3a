// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"testing"
	"time"

	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// TestTypedEndBecomesATime writes the end of a stop as typed on the page. The annotation must hold a time, not a
// word such as tomorrow.
func TestTypedEndBecomesATime(t *testing.T) {
	now := time.Date(2026, 12, 1, 15, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"tomorrow 18:00":            "2026-12-02T18:00:00Z",
		"3d":                        "2026-12-04T15:00:00Z",
		"8h":                        "8h",
		"2026-12-24T18:00:00+01:00": "2026-12-24T17:00:00Z",
	} {
		t.Run(text, func(t *testing.T) {
			found, err := Change{Until: &text}.untilText("", nil, now)
			if err != nil || found != want || !stoprecord.IsAnnotationTime(found) {
				t.Errorf("expected %s, which an annotation can hold, found %q: %v", want, found, err)
			}
		})
	}
}
