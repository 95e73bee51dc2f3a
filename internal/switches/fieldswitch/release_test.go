// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRelease has steps by users and Slumbers before the kind's StopAdapter is deleted. It expects the replicas, the
// word "kept" if the saved fields remain and "free" otherwise, and the events.
func TestRelease(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ steps, want string }{
		"an object that was never stopped is not changed":                                  {"", "3 free"},
		"an object that a Slumber stopped is restored":                                     {"sleep", "3 free ObjectRestored"},
		"an object that a user scaled during a Slumber's stop loses Torpor's annotations":  {"sleep scale:5", "5 free"},
		"an object that a user stopped stays stopped":                                      {"stop", "0 kept LeftStopped"},
		"an object that a user stopped during a Slumber's stop stays stopped":              {"sleep stop", "0 kept LeftStopped"},
		"a scaling that no pass has seen, during a Slumber's stop, is kept":                {"sleep scale:5/dies", "5 free StartedByOthers"},
		"a scaling that no pass has seen, after a user's stop, is kept":                    {"stop scale:5/dies", "5 free StartedByOthers"},
		"a user's stop after a scaling has no effect if no pass has seen either of them":   {"sleep scale:5/dies stop/dies", "5 free"},
		"an object whose stop by a user has expired is restored":                           {"stop until later/dies", "3 free StopEnded ObjectRestored"},
		"an invalid restore annotation is kept, so that a user can fix it":                 {"sleep spoil", "0 kept LeftStopped"},
		"an object whose stop was refused loses Torpor's annotations":                      {"refuse sleep", "3 free"},
		"an object that a user scaled to zero before a Slumber's stop keeps zero replicas": {"scale:0 sleep", "0 free ObjectRestored"},
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
