// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWishOnAnnotations(t *testing.T) {
	t.Parallel()
	const (
		stopped, other, why, end = "moco.cybozu.com/clustering-stopped", "moco.cybozu.com/reconciliation-stopped", "torpor.dev/reason", "torpor.dev/until"
		soon, past               = "2026-01-01T01:00:00Z", "2025-12-31T23:00:00Z"
	)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type annotations = map[string]string
	stop, start := wish{part: clusteringPart(), stop: true}, wish{part: clusteringPart()}
	because, nobody := stop, stop
	because.reason, because.until = new("b"), new(soon)
	nobody.reason = new("")
	for name, test := range map[string]struct {
		wish wish
		has  annotations
		want change
	}{
		"a stop":                              {stop, nil, change{annotations: annotations{stopped: "true"}}},
		"a stop that is there":                {stop, annotations{stopped: "true", why: "a"}, change{annotations: annotations{stopped: "true", why: "a"}, already: true}},
		"a stop with a reason":                {because, annotations{"x": "y"}, change{annotations: annotations{stopped: "true", why: "b", end: soon, "x": "y"}}},
		"another reason":                      {because, annotations{stopped: "true", why: "a"}, change{annotations: annotations{stopped: "true", why: "b", end: soon}, already: true}},
		"no reason any more":                  {nobody, annotations{stopped: "true", why: "a"}, change{annotations: annotations{stopped: "true"}, already: true}},
		"what an earlier stop left is gone":   {stop, annotations{why: "a", end: soon}, change{annotations: annotations{stopped: "true"}}},
		"a stop that ended is one again":      {stop, annotations{stopped: "true", end: past}, change{annotations: annotations{stopped: "true"}, removed: "true"}},
		"the other part keeps its reason":     {stop, annotations{other: "true", why: "a"}, change{annotations: annotations{stopped: "true", other: "true", why: "a"}}},
		"a value that is no stop":             {stop, annotations{stopped: "yes"}, change{annotations: annotations{stopped: "true"}, removed: "yes"}},
		"a time that nobody can read":         {stop, annotations{stopped: "true", end: "soon"}, change{annotations: annotations{stopped: "true", end: "soon"}, already: true}},
		"a start":                             {start, annotations{stopped: "true", why: "a", end: soon, "x": "y"}, change{annotations: annotations{"x": "y"}}},
		"a start of what runs":                {start, annotations{why: "a"}, change{annotations: annotations{why: "a"}, already: true}},
		"a start beside a stop":               {start, annotations{stopped: "true", other: "true", why: "a"}, change{annotations: annotations{other: "true", why: "a"}}},
		"a start removes what stops nothing":  {start, annotations{stopped: "True"}, change{annotations: annotations{}, already: true, removed: "True"}},
		"a start after the end of a stop":     {start, annotations{stopped: "true", end: past}, change{annotations: annotations{}, already: true, removed: "true"}},
		"a start of what runs beside a stop":  {start, annotations{other: "true", end: soon}, change{annotations: annotations{other: "true", end: soon}, already: true}},
		"a start that frees no other's value": {start, annotations{stopped: "true", other: "no", why: "a"}, change{annotations: annotations{other: "no"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := test.wish.on(test.has, now)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(change{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
