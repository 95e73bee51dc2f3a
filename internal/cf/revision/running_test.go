// SPDX-License-Identifier: Apache-2.0

package revision

import "testing"

func TestRunning(t *testing.T) {
	for name, test := range map[string]struct {
		current, lastStop int64
		cancelled         bool
		existing          []ExistingRevision
		want              int64
	}{
		"an active deployment runs the current revision":                                      {current: 4, existing: serving(3, 4), want: 4},
		"the newest earlier revision that serves runs after a cancelled deployment":           {current: 4, cancelled: true, existing: serving(2, 4, 3), want: 3},
		"an earlier revision that does not serve is skipped after a cancelled deployment":     {current: 4, cancelled: true, existing: append(serving(1, 2), ExistingRevision{Number: 3}), want: 2},
		"the oldest earlier revision runs after a cancelled deployment if no revision serves": {current: 4, cancelled: true, existing: []ExistingRevision{{Number: 3}, {Number: 2}}, want: 2},
		"a cancelled deployment never runs a revision before the last stop":                   {current: 4, lastStop: 3, cancelled: true, existing: serving(1, 2, 4), want: 4},
		"the revision that the last stop began may run after a cancelled deployment":          {current: 4, lastStop: 3, cancelled: true, existing: serving(2, 3), want: 3},
		"a cancelled deployment never runs a revision after its own":                          {current: 4, cancelled: true, existing: serving(5), want: 4},
		"a cancelled deployment without an earlier revision keeps the current one":            {current: 4, cancelled: true, want: 4},
		"a cancelled deployment may restore the first revision, which is 0":                   {current: 1, cancelled: true, existing: serving(0, -1), want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := SelectTargetRevision(test.current, test.lastStop, test.cancelled, test.existing); got != test.want {
				t.Errorf("found %d, want %d", got, test.want)
			}
		})
	}
}

func serving(numbers ...int64) (all []ExistingRevision) {
	for _, n := range numbers {
		all = append(all, ExistingRevision{Number: n, Serves: true})
	}
	return all
}
