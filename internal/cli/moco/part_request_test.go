// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChangeAnnotations(t *testing.T) {
	t.Parallel()
	const (
		stopped, other, why, end = "moco.cybozu.com/clustering-stopped", "moco.cybozu.com/reconciliation-stopped", "torpor.dev/reason", "torpor.dev/until"
		soon, past               = "2026-01-01T01:00:00Z", "2025-12-31T23:00:00Z"
	)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type annotations = map[string]string
	stop, start := partRequest{part: clusteringPart(), stop: true}, partRequest{part: clusteringPart()}
	because, noReason := stop, stop
	because.reason, because.until = new("b"), new(soon)
	noReason.reason = new("")
	for name, test := range map[string]struct {
		wish partRequest
		has  annotations
		want annotationChange
	}{
		"a stop":                              {stop, nil, annotationChange{annotations: annotations{stopped: "true"}}},
		"a stop that is there":                {stop, annotations{stopped: "true", why: "a"}, annotationChange{annotations: annotations{stopped: "true", why: "a"}, alreadyDone: true}},
		"a stop with a reason":                {because, annotations{"x": "y"}, annotationChange{annotations: annotations{stopped: "true", why: "b", end: soon, "x": "y"}}},
		"another reason":                      {because, annotations{stopped: "true", why: "a"}, annotationChange{annotations: annotations{stopped: "true", why: "b", end: soon}, alreadyDone: true}},
		"no reason any more":                  {noReason, annotations{stopped: "true", why: "a"}, annotationChange{annotations: annotations{stopped: "true"}, alreadyDone: true}},
		"what an earlier stop left is gone":   {stop, annotations{why: "a", end: soon}, annotationChange{annotations: annotations{stopped: "true"}}},
		"a stop that ended is one again":      {stop, annotations{stopped: "true", end: past}, annotationChange{annotations: annotations{stopped: "true"}, removedValue: "true"}},
		"the other part keeps its reason":     {stop, annotations{other: "true", why: "a"}, annotationChange{annotations: annotations{stopped: "true", other: "true", why: "a"}}},
		"a value that is no stop":             {stop, annotations{stopped: "yes"}, annotationChange{annotations: annotations{stopped: "true"}, removedValue: "yes"}},
		"a time that cannot be parsed":        {stop, annotations{stopped: "true", end: "soon"}, annotationChange{annotations: annotations{stopped: "true", end: "soon"}, alreadyDone: true}},
		"a start":                             {start, annotations{stopped: "true", why: "a", end: soon, "x": "y"}, annotationChange{annotations: annotations{"x": "y"}}},
		"a start of what runs":                {start, annotations{why: "a"}, annotationChange{annotations: annotations{why: "a"}, alreadyDone: true}},
		"a start beside a stop":               {start, annotations{stopped: "true", other: "true", why: "a"}, annotationChange{annotations: annotations{other: "true", why: "a"}}},
		"a start removes what stops nothing":  {start, annotations{stopped: "True"}, annotationChange{annotations: annotations{}, alreadyDone: true, removedValue: "True"}},
		"a start after the end of a stop":     {start, annotations{stopped: "true", end: past}, annotationChange{annotations: annotations{}, alreadyDone: true, removedValue: "true"}},
		"a start of what runs beside a stop":  {start, annotations{other: "true", end: soon}, annotationChange{annotations: annotations{other: "true", end: soon}, alreadyDone: true}},
		"a start that frees no other's value": {start, annotations{stopped: "true", other: "no", why: "a"}, annotationChange{annotations: annotations{other: "no"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := test.wish.changeAnnotations(test.has, now)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(annotationChange{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
