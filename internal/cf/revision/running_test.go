// SPDX-License-Identifier: Apache-2.0

package revision

import "testing"

func TestRunning(t *testing.T) {
	for name, test := range map[string]struct {
		current, lastStop int64
		cancelled         bool
		existing          []int64
		want              int64
	}{
		"a deployment that goes on runs the current revision":           {current: 4, existing: []int64{3, 4}, want: 4},
		"a cancelled deployment runs the newest earlier revision":       {current: 4, cancelled: true, existing: []int64{2, 4, 3}, want: 3},
		"a cancelled deployment never runs what the last stop ended":    {current: 4, lastStop: 3, cancelled: true, existing: []int64{1, 2, 4}, want: 4},
		"a cancelled deployment may run what the last stop began":       {current: 4, lastStop: 3, cancelled: true, existing: []int64{2, 3}, want: 3},
		"a cancelled deployment never runs a revision after its own":    {current: 4, cancelled: true, existing: []int64{5}, want: 4},
		"a cancelled deployment without an earlier revision runs on":    {current: 4, cancelled: true, want: 4},
		"a cancelled deployment may run the first revision, which is 0": {current: 1, cancelled: true, existing: []int64{0, -1}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := SelectTargetRevision(test.current, test.lastStop, test.cancelled, test.existing); got != test.want {
				t.Errorf("found %d, want %d", got, test.want)
			}
		})
	}
}
