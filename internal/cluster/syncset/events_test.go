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
		"unchanged set emits no event":                           {observed([]ObservedSet{deletingSet("s", 1, a)}, applied("s", a)), ""},
		"refused set emits a warning":                            {answered(applied("s", a), "ConfigMap a: no"), "Warning SyncSetsFailed SyncSet s: ConfigMap a: no"},
		"set that is refused again emits no event":               {answered(failed, "ConfigMap a: no"), ""},
		"set that is refused for another reason emits a warning": {answered(failed, "ConfigMap a: never"), "Warning SyncSetsFailed SyncSet s: ConfigMap a: never"},
		"set that is applied after a refusal emits an event":     {answered(failed, ""), "Normal SyncSetsRecovered Applied after a failure: SyncSet s"},
		"set that is applied again emits no event":               {answered(applied("s", a), ""), ""},
		"new set whose objects are only recorded emits no event": {observed([]ObservedSet{deletingSet("s", 1, a)}), ""},
		"invalid set emits a warning":                            {observed([]ObservedSet{{SetKey: SetKey{Name: "s"}, Generation: 1, Invalid: "bad"}}), "Warning SyncSetsFailed SyncSet s: bad"},
		"set that stays invalid emits no further warning":        {observed([]ObservedSet{{SetKey: SetKey{Name: "s"}, Generation: 1, Invalid: "ConfigMap a: no"}}, failed), ""},
		"cluster that has caught up emits an event": {
			answered(applied("s", a), "").with(func(o *Observed) {
				o.Resume, o.Answer.Job = &resume, Job{IsFull: true, Sets: []SetKey{{Name: "s"}}, Resume: &resume}
			}), "Normal CaughtUp All sets were applied to the cluster after the resume that began at 2026-11-23T11:59:00Z",
		},
		"cluster that refuses a set has not caught up": {
			answered(failed, "ConfigMap a: no").with(func(o *Observed) {
				o.Resume, o.Answer.Job = &resume, Job{IsFull: true, Sets: []SetKey{{Name: "s"}}, Resume: &resume}
			}), "",
		},
		"cluster with too many sets has not caught up": {
			answered(applied("s", a), "").with(func(o *Observed) {
				o.Excess, o.Resume, o.Answer.Job = 1, &resume, Job{IsFull: true, Sets: []SetKey{{Name: "s"}}, Resume: &resume}
			}), "",
		},
		"long list of sets is shortened": {
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
