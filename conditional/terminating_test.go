// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
)

func TestServedWhileACRDIsDeleted(t *testing.T) {
	const going = "the CRD waits for its objects"
	there := detect.Verdict{Presence: detect.Served, Reason: "Served", Identity: "a"}
	leaves := detect.Verdict{Presence: detect.Served, Reason: "Terminating", Message: going, Identity: "b", Terminating: true}
	absent := detect.Verdict{Presence: detect.Absent, Reason: "NotServed", Message: "absent"}
	unclear := detect.Verdict{Presence: detect.Unclear, Reason: "DiscoveryFailed", Message: "unclear"}
	cases := map[string]struct {
		verdicts    []detect.Verdict
		waits, stop Status
	}{
		"none is": {
			[]detect.Verdict{there, there},
			Status{State: True, Reason: "Served", Identity: "a,a"},
			Status{State: True, Reason: "Served", Identity: "a,a"},
		},
		"one is": {
			[]detect.Verdict{there, leaves},
			Status{State: True, Reason: "Terminating", Message: going, Identity: "a,b"},
			Status{State: False, Reason: "Terminating", Message: going},
		},
		"one is, another is unclear": {
			[]detect.Verdict{leaves, unclear},
			Status{State: Unknown, Reason: "DiscoveryFailed", Message: "unclear"},
			Status{State: False, Reason: "Terminating", Message: going},
		},
		"one is, another is absent": {
			[]detect.Verdict{absent, leaves},
			Status{State: False, Reason: "NotServed", Message: "absent"},
			Status{State: False, Reason: "NotServed", Message: "absent"},
		},
		"unclear comes before absent": {
			[]detect.Verdict{unclear, absent},
			Status{State: False, Reason: "NotServed", Message: "absent"},
			Status{State: False, Reason: "NotServed", Message: "absent"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.waits, allServedStatus(c.verdicts)); diff != "" {
				t.Errorf("that waits (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.stop, allServedStatus(withoutTerminating(c.verdicts))); diff != "" {
				t.Errorf("that stops (-want +got):\n%s", diff)
			}
		})
	}
}
