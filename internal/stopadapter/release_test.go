// SPDX-License-Identifier: Apache-2.0

package stopadapter

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRelease has sequences of what people and Slumbers do, as words, before the kind's StopAdapter is deleted; and then the replicas, whether
// something is kept, and what was told.
func TestRelease(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ steps, want string }{
		"what was never stopped stays as it is":                 {"", "3 free"},
		"what a Slumber stopped comes back":                     {"sleep", "3 free ObjectRestored"},
		"what was left alone is not marked any more":            {"sleep scale:5", "5 free"},
		"what a person stopped stays so":                        {"stop", "0 kept LeftStopped"},
		"what a person stopped in a sleep stays so":             {"sleep stop", "0 kept LeftStopped"},
		"what somebody scaled stays so, although nobody saw it": {"sleep scale:5/dies", "5 free StartedByOthers"},
		"what was stopped and scaled, and nobody saw it, is on": {"stop scale:5/dies", "5 free StartedByOthers"},
		"a stop that nobody saw is of nobody any more":          {"sleep scale:5/dies stop/dies", "5 free"},
		"a stop whose time is over comes back":                  {"stop until later/dies", "3 free StopEnded ObjectRestored"},
		"what was spoilt is for people to put right":            {"sleep spoil", "0 kept LeftStopped"},
		"a refused stop is not marked any more":                 {"refuse sleep", "3 free"},
		"a zero of a person stays one":                          {"scale:0 sleep", "0 free ObjectRestored"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			w.doAll(row.steps)
			plan := Release(ObservedSwitch{Now: w.now, Object: w.object, Operations: scaleToZero(), Manager: w.manager}, "the StopAdapter is deleted")
			w.object = plan.Next
			is, words := ReadSwitch(w.object), []string{fmt.Sprint(w.replicas()), "free"}
			if len(is.Saved) > 0 || is.Unreadable != "" {
				words[1] = "kept"
			}
			for _, e := range plan.Events {
				words = append(words, e.Reason)
			}
			words = slices.DeleteFunc(words, func(reason string) bool { return reason == "RequesterUnknown" })
			if found := strings.Join(words, " "); found != row.want || len(is.Scheduled) > 0 || !is.ResumedAt.IsZero() || is.Refused != "" && is.Unreadable == "" {
				t.Errorf("expected %q and nothing of Slumbers, found %q: %v", row.want, found, w.object.GetAnnotations())
			}
		})
	}
}
