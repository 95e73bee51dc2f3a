// SPDX-License-Identifier: Apache-2.0

package switches_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
)

func TestChangeAnnotations(t *testing.T) {
	t.Parallel()
	const (
		stopped, other, why, end = "moco.cybozu.com/clustering-stopped", "moco.cybozu.com/reconciliation-stopped", "torpor.dev/reason", "torpor.dev/until"
		ownWhy, ownEnd, otherWhy = "torpor.dev/clustering-reason", "torpor.dev/clustering-until", "torpor.dev/reconciliation-reason"
		force, look              = "torpor.dev/force-start", "torpor.dev/look-requested"
		soon, past               = "2026-01-01T01:00:00Z", "2025-12-31T23:00:00Z"
	)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type annotations = map[string]string
	stop, start := mysqlswitches.PartRequest{Part: mysqlswitches.ClusteringPart(), IsStop: true}, mysqlswitches.PartRequest{Part: mysqlswitches.ClusteringPart()}
	because, noReason := stop, stop
	because.Reason, because.Until = new("b"), new(soon)
	noReason.Reason = new("")
	for name, test := range map[string]struct {
		wish mysqlswitches.PartRequest
		has  annotations
		want mysqlswitches.AnnotationChange
	}{
		"a first stop sets the stop annotation":                                 {stop, nil, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true"}}},
		"a repeated stop changes nothing":                                       {stop, annotations{stopped: "true", why: "a"}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true", why: "a"}, AlreadyDone: true}},
		"a stop with a reason and an end sets the part's own annotations":       {because, annotations{"x": "y"}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true", ownWhy: "b", ownEnd: soon, "x": "y"}}},
		"a repeated stop with a new reason replaces the shared reason":          {because, annotations{stopped: "true", why: "a"}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true", ownWhy: "b", ownEnd: soon}, AlreadyDone: true}},
		"a stop with its own reason keeps the shared reason for the other stop": {because, annotations{stopped: "true", other: "true", why: "a"}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true", other: "true", why: "a", ownWhy: "b", ownEnd: soon}, AlreadyDone: true}},
		"a repeated stop with an empty reason removes the reason":               {noReason, annotations{stopped: "true", why: "a"}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true"}, AlreadyDone: true}},
		"a stop removes the shared reason and end of an earlier stop":           {stop, annotations{why: "a", end: soon}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true"}}},
		"a stop after an expired stop removes the shared end that has passed":   {stop, annotations{stopped: "true", end: past}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true"}, RemovedValue: "true"}},
		"a stop removes the part's own reason and end of an earlier stop":       {stop, annotations{other: "true", ownWhy: "a", ownEnd: past}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true", other: "true"}}},
		"a repeated stop keeps its own end and a shared end that has passed":    {stop, annotations{stopped: "true", ownEnd: soon, end: past}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true", ownEnd: soon, end: past}, AlreadyDone: true}},
		"a stop after the part's own end has passed removes both ends":          {stop, annotations{stopped: "true", ownEnd: past, end: soon}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true"}, RemovedValue: "true"}},
		"a stop of one part keeps the shared reason for the other stopped part": {stop, annotations{other: "true", why: "a"}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true", other: "true", why: "a"}}},
		"a stop replaces a value other than true":                               {stop, annotations{stopped: "yes"}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true"}, RemovedValue: "yes"}},
		"a repeated stop keeps an end that cannot be parsed":                    {stop, annotations{stopped: "true", end: "soon"}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true", end: "soon"}, AlreadyDone: true}},
		"a start removes the stop, its reason and its end":                      {start, annotations{stopped: "true", why: "a", end: soon, "x": "y"}, mysqlswitches.AnnotationChange{Annotations: annotations{"x": "y"}}},
		"a start of a running part changes nothing":                             {start, annotations{why: "a"}, mysqlswitches.AnnotationChange{Annotations: annotations{why: "a"}, AlreadyDone: true}},
		"a start keeps the shared reason for the other stop":                    {start, annotations{stopped: "true", other: "true", why: "a"}, mysqlswitches.AnnotationChange{Annotations: annotations{other: "true", why: "a"}}},
		"a start removes only the annotations of its part":                      {start, annotations{stopped: "true", other: "true", ownWhy: "a", ownEnd: soon, otherWhy: "b"}, mysqlswitches.AnnotationChange{Annotations: annotations{other: "true", otherWhy: "b"}}},
		"a start removes a value other than true":                               {start, annotations{stopped: "True"}, mysqlswitches.AnnotationChange{Annotations: annotations{}, AlreadyDone: true, RemovedValue: "True"}},
		"a start after an expired stop removes the stop and its end":            {start, annotations{stopped: "true", end: past}, mysqlswitches.AnnotationChange{Annotations: annotations{}}},
		"a start removes the request for a check of the instances":              {start, annotations{stopped: "true", look: "now"}, mysqlswitches.AnnotationChange{Annotations: annotations{}}},
		"a stop removes an earlier request to force a start":                    {stop, annotations{force: "true"}, mysqlswitches.AnnotationChange{Annotations: annotations{stopped: "true"}}},
		"a start of a running part keeps the other part's stop":                 {start, annotations{other: "true", end: soon}, mysqlswitches.AnnotationChange{Annotations: annotations{other: "true", end: soon}, AlreadyDone: true}},
		"a start removes a shared reason that no stop uses":                     {start, annotations{stopped: "true", other: "no", why: "a"}, mysqlswitches.AnnotationChange{Annotations: annotations{other: "no"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := test.wish.ChangeAnnotations(test.has, now)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}
