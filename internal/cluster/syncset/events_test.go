// SPDX-License-Identifier: Apache-2.0

package syncset

import (
	"fmt"
	"strings"
	"testing"

	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
)

func TestEventsReportTheResultsOfSets(t *testing.T) {
	a := object("a")
	failed := applied("s", a)
	failed.Result, failed.FailureMessage = hiveinternalv1alpha1.FailureSyncSetResult, "ConfigMap a: no"
	answered := func(status hiveinternalv1alpha1.SyncStatus, failure string) Observed {
		return observed([]ObservedSet{deletingSet("s", 1, a)}, status).with(func(o *Observed) {
			o.Answer = &Answer{At: now, Results: []Result{{SetKey: SetKey{Name: "s"}, Generation: 1, Failure: failure}}}
		})
	}
	var many []Result
	for i := range maxNames + 2 {
		many = append(many, Result{SetKey: SetKey{Name: fmt.Sprintf("s%d", i)}, Generation: 1, Failure: "no"})
	}
	for name, row := range map[string]struct {
		seen Observed
		want string
	}{
		"an unchanged set has no event":                          {observed([]ObservedSet{deletingSet("s", 1, a)}, applied("s", a)), ""},
		"a refused set has a warning":                            {answered(applied("s", a), "ConfigMap a: no"), "Warning SyncSetsFailed SyncSet s: ConfigMap a: no"},
		"a set that is refused again has no event":               {answered(failed, "ConfigMap a: no"), ""},
		"a set that is refused for another reason has a warning": {answered(failed, "ConfigMap a: never"), "Warning SyncSetsFailed SyncSet s: ConfigMap a: never"},
		"a set that is applied after a refusal has an event":     {answered(failed, ""), "Normal SyncSetsRecovered Applied after a failure: SyncSet s"},
		"a set that is applied again has no event":               {answered(applied("s", a), ""), ""},
		"a set that was only recorded has no event":              {observed([]ObservedSet{deletingSet("s", 1, a)}), ""},
		"an invalid set has a warning":                           {observed([]ObservedSet{{SetKey: SetKey{Name: "s"}, Generation: 1, Invalid: "bad"}}), "Warning SyncSetsFailed SyncSet s: bad"},
		"an invalid set has one warning only":                    {observed([]ObservedSet{{SetKey: SetKey{Name: "s"}, Generation: 1, Invalid: "ConfigMap a: no"}}, failed), ""},
		"a cluster that has caught up has an event": {
			answered(applied("s", a), "").with(func(o *Observed) {
				o.Resume, o.Answer.Job = &resume, Job{IsFull: true, Sets: []SetKey{{Name: "s"}}, Resume: &resume}
			}), "Normal CaughtUp All sets are applied after the resume that began at 2026-11-23T11:59:00Z",
		},
		"a cluster that refuses a set has not caught up": {
			answered(failed, "ConfigMap a: no").with(func(o *Observed) {
				o.Resume, o.Answer.Job = &resume, Job{IsFull: true, Sets: []SetKey{{Name: "s"}}, Resume: &resume}
			}), "",
		},
		"a cluster with too many sets has not caught up": {
			answered(applied("s", a), "").with(func(o *Observed) {
				o.Excess, o.Resume, o.Answer.Job = 1, &resume, Job{IsFull: true, Sets: []SetKey{{Name: "s"}}, Resume: &resume}
			}), "",
		},
		"only some of many sets are named": {
			observed(nil).with(func(o *Observed) {
				o.Answer = &Answer{At: now, Results: many}
				for _, r := range many {
					o.Sets = append(o.Sets, ObservedSet{SetKey: r.SetKey, Generation: 1})
				}
			}), "Warning SyncSetsFailed SyncSet s0: no; SyncSet s1: no; SyncSet s2: no; SyncSet s3: no; SyncSet s4: no; and 2 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var found []string
			for _, e := range Decide(row.seen).Events {
				kind := map[bool]string{true: "Warning", false: "Normal"}[e.Warning]
				found = append(found, kind+" "+e.Reason+" "+e.Note)
			}
			if got := strings.Join(found, "\n"); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}
