// SPDX-License-Identifier: Apache-2.0

package syncset

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
)

var (
	now     = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	earlier = metav1.NewTime(now.Add(-time.Hour))
	resume  = metav1.NewTime(now.Add(-time.Minute))
)

func object(name string) Reference {
	return Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name}
}

// deletingSet returns a set of the mode Sync.
func deletingSet(name string, generation int64, objects ...Reference) ObservedSet {
	return ObservedSet{SetKey: SetKey{Name: name}, Generation: generation, Deletes: true, References: objects}
}

func applied(name string, objects ...Reference) hiveinternalv1alpha1.SyncStatus {
	return hiveinternalv1alpha1.SyncStatus{
		Name: name, ObservedGeneration: 1, ResourcesToDelete: objects, Result: hiveinternalv1alpha1.SuccessSyncSetResult,
		LastTransitionTime: earlier, FirstSuccessTime: &earlier,
	}
}

// observed returns a reachable cluster with sets that were all applied an hour ago.
func observed(sets []ObservedSet, statuses ...hiveinternalv1alpha1.SyncStatus) Observed {
	return Observed{
		Now: now, UID: "uid", MayDial: true, Sets: sets,
		Status: hiveinternalv1alpha1.ClusterSyncStatus{SyncSets: statuses, LastSyncTime: &earlier, FirstSuccessTime: &earlier},
	}
}

func (o Observed) with(change func(*Observed)) Observed {
	change(&o)
	return o
}

// decided is the expected plan of a row.
type decided struct {
	rule, synced, failed string
	sets                 []string
	deleted              []string
	isFull               bool
	recorded             []string
}

func TestDecide(t *testing.T) {
	a, b := object("a"), object("b")
	oneApplied := observed([]ObservedSet{deletingSet("s", 1, a)}, applied("s", a))
	changed := observed([]ObservedSet{deletingSet("s", 2, a)}, applied("s", a))
	const (
		rest, asleep, record, retry, apply = "everything is applied", "the cluster may not be dialled", "objects to apply are recorded", "the next attempt must wait", "apply the sets"
	)
	for name, row := range map[string]struct {
		seen Observed
		want decided
	}{
		"cluster with unchanged sets is not changed": {oneApplied, decided{rule: rest, synced: "AllApplied", recorded: []string{"a"}}},
		"changed set is applied":                     {changed, decided{rule: apply, synced: "Applying", sets: []string{"s"}, recorded: []string{"a"}}},
		"changed set of a hibernating cluster waits": {
			changed.with(func(o *Observed) { o.MayDial = false }), decided{rule: asleep, synced: "WaitingForCluster", recorded: []string{"a"}},
		},
		"changed set of a paused cluster waits": {
			changed.with(func(o *Observed) { o.IsPaused = true }), decided{rule: "changes to the cluster are paused", synced: "Paused", recorded: []string{"a"}},
		},
		"object of the mode Sync is recorded before it is created": {
			observed([]ObservedSet{deletingSet("s", 2, a, b)}, applied("s", a)), decided{rule: record, synced: "Applying", recorded: []string{"a", "b"}},
		},
		"new objects of a hibernating cluster are not recorded yet": {
			observed([]ObservedSet{deletingSet("s", 2, a, b)}, applied("s", a)).with(func(o *Observed) { o.MayDial = false }),
			decided{rule: asleep, synced: "WaitingForCluster", recorded: []string{"a"}},
		},
		"object removed from a set of the mode Sync is deleted": {
			observed([]ObservedSet{deletingSet("s", 1, a)}, applied("s", a, b)), decided{rule: apply, synced: "Applying", deleted: []string{"b"}, recorded: []string{"a", "b"}},
		},
		"object of a deleted set is deleted": {
			observed(nil, applied("s", a)), decided{rule: apply, synced: "Applying", deleted: []string{"a"}, recorded: []string{"a"}},
		},
		"object that moved to another set is not deleted": {
			observed([]ObservedSet{{SetKey: SetKey{Name: "other"}, Generation: 1, References: []Reference{a}}}, applied("other"), applied("s", a)),
			decided{rule: rest, synced: "AllApplied"},
		},
		"invalid set prevents deletions": {
			observed([]ObservedSet{{SetKey: SetKey{Name: "bad"}, Generation: 1, Invalid: "why"}}, applied("s", a)),
			decided{rule: rest, synced: "Failure", failed: "SyncSet bad: why", recorded: []string{"a"}},
		},
		"objects of SelectorSyncSets are not deleted while SelectorSyncSets are not read": {
			observed(nil).with(func(o *Observed) {
				o.Status.SelectorSyncSets, o.AreSelectorsUnread = []hiveinternalv1alpha1.SyncStatus{applied("s", a)}, true
			}),
			decided{rule: rest, synced: "Failure", failed: "SelectorSyncSets are not read", recorded: []string{"a"}},
		},
		"object of a deleted SyncSet is not deleted if an unread SelectorSyncSet has it too": {
			observed(nil, applied("gone", a, b)).with(func(o *Observed) {
				o.Status.SelectorSyncSets, o.AreSelectorsUnread = []hiveinternalv1alpha1.SyncStatus{applied("s", a)}, true
			}),
			decided{rule: apply, synced: "Applying", failed: "SelectorSyncSets are not read", deleted: []string{"b"}, recorded: []string{"b", "a"}},
		},
		"unread SelectorSyncSets without objects in the cluster are dropped from the status": {
			observed(nil).with(func(o *Observed) {
				o.Status.SelectorSyncSets, o.AreSelectorsUnread = []hiveinternalv1alpha1.SyncStatus{applied("s")}, true
			}),
			decided{rule: rest, synced: "AllApplied"},
		},
		"too many sets prevent deletions": {
			observed(nil, applied("s", a)).with(func(o *Observed) { o.Excess = 1 }),
			decided{rule: rest, synced: "Failure", failed: "Expected at most 100 sets", recorded: []string{"a"}},
		},
		"set whose mode became Upsert deletes nothing": {
			observed([]ObservedSet{{SetKey: SetKey{Name: "s"}, Generation: 1}}, applied("s", a)), decided{rule: rest, synced: "AllApplied"},
		},
		"first pass after a resume applies all sets": {
			oneApplied.with(func(o *Observed) { o.Resume = &resume }), decided{rule: apply, synced: "Applying", sets: []string{"s"}, isFull: true, recorded: []string{"a"}},
		},
		"sets that were applied after the resume are not applied again": {
			oneApplied.with(func(o *Observed) { o.Resume, o.Status.SyncedResume = &resume, &resume }), decided{rule: rest, synced: "AllApplied", recorded: []string{"a"}},
		},
		"all sets are applied again when the sync interval has passed": {
			oneApplied.with(func(o *Observed) { o.Now = now.Add(3 * time.Hour) }), decided{rule: apply, synced: "Applying", sets: []string{"s"}, isFull: true, recorded: []string{"a"}},
		},
		"sets whose last attempt failed wait for the next attempt": {
			changed.with(func(o *Observed) {
				o.Attempt = Attempt{Fingerprint: fingerprintOf(changed), RetryAt: now.Add(time.Minute), NoAnswer: "no answer in time"}
			}), decided{rule: retry, synced: "NoAnswer", recorded: []string{"a"}},
		},
		"sets are applied without a wait after an attempt of other sets failed": {
			changed.with(func(o *Observed) {
				o.Attempt = Attempt{Fingerprint: "other", RetryAt: now.Add(time.Minute)}
			}), decided{rule: apply, synced: "Applying", sets: []string{"s"}, recorded: []string{"a"}},
		},
		"sets are applied without a wait after an attempt at another server failed": {
			changed.with(func(o *Observed) {
				o.Attempt = Attempt{Fingerprint: fingerprintOf(changed), RetryAt: now.Add(time.Minute), NoAnswer: "no answer in time"}
				o.Server = "another"
			}), decided{rule: apply, synced: "Applying", sets: []string{"s"}, recorded: []string{"a"}},
		},
		"success is recorded": {
			changed.with(func(o *Observed) {
				o.Answer = &Answer{At: now, Job: Job{Sets: []SetKey{{Name: "s"}}}, Results: []Result{{SetKey: SetKey{Name: "s"}, Generation: 2}}}
			}), decided{rule: rest, synced: "AllApplied", recorded: []string{"a"}},
		},
		"set that changed while it was applied is applied again": {
			changed.with(func(o *Observed) {
				o.Answer = &Answer{At: now, Job: Job{Sets: []SetKey{{Name: "s"}}}, Results: []Result{{SetKey: SetKey{Name: "s"}, Generation: 1}}}
			}), decided{rule: apply, synced: "Applying", sets: []string{"s"}, recorded: []string{"a"}},
		},
		"refusal is reported with its set and object": {
			changed.with(func(o *Observed) {
				o.Attempt = Attempt{Fingerprint: fingerprintOf(changed), RetryAt: now.Add(time.Minute)}
				o.Answer = &Answer{At: now, Job: Job{Sets: []SetKey{{Name: "s"}}}, Results: []Result{{SetKey: SetKey{Name: "s"}, Generation: 2, Failure: "ConfigMap default/a: no"}}}
			}), decided{rule: retry, synced: "Failure", failed: "SyncSet s: ConfigMap default/a: no", recorded: []string{"a"}},
		},
		"deleted object is dropped from the status": {
			observed([]ObservedSet{deletingSet("s", 1, a)}, applied("s", a, b)).with(func(o *Observed) {
				o.Answer = &Answer{At: now, Job: Job{Delete: []Reference{b}}, Deleted: []Reference{b}}
			}), decided{rule: rest, synced: "AllApplied", recorded: []string{"a"}},
		},
		"interrupted full job does not complete the sync of a resume": {
			oneApplied.with(func(o *Observed) {
				o.Resume = &resume
				o.Answer = &Answer{At: now, Job: Job{Sets: []SetKey{{Name: "s"}}, IsFull: true, Resume: &resume}}
			}), decided{rule: apply, synced: "Applying", sets: []string{"s"}, isFull: true, recorded: []string{"a"}},
		},
		"full job that reached all sets completes the sync of its resume": {
			oneApplied.with(func(o *Observed) {
				o.Resume = &resume
				o.Answer = &Answer{At: now, Job: Job{Sets: []SetKey{{Name: "s"}}, IsFull: true, Resume: &resume}, Results: []Result{{SetKey: SetKey{Name: "s"}, Generation: 1}}}
			}), decided{rule: rest, synced: "AllApplied", recorded: []string{"a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(row.seen)
			if diff := cmp.Diff(row.want, describe(plan, row.want.failed), cmp.AllowUnexported(decided{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestFullSyncThatTakesSeveralJobsEnds processes one set with each job until the sync is complete.
func TestFullSyncThatTakesSeveralJobsEnds(t *testing.T) {
	seen := Observed{Now: now, MayDial: true, Resume: &resume}
	for _, name := range []string{"a", "b", "c"} {
		set := ObservedSet{SetKey: SetKey{Name: name}, Generation: 1}
		seen.Sets = append(seen.Sets, set)
		seen.Status.SyncSets = append(seen.Status.SyncSets, hiveinternalv1alpha1.SyncStatus{Name: name, ObservedGeneration: 1, Result: hiveinternalv1alpha1.SuccessSyncSetResult})
	}
	seen.Status.LastSyncTime = new(metav1.NewTime(now.Add(-time.Hour)))
	var done []string
	for plan := Decide(seen); plan.Job != nil; plan = Decide(seen) {
		if done = append(done, plan.Job.Sets[0].Name); len(done) > len(seen.Sets) {
			t.Fatalf("expected each set once, found %v", done)
		}
		if plan.Status.SyncedResume != nil {
			t.Errorf("expected a sync that is not complete after %v", done)
		}
		seen.Status = plan.Status
		seen.Answer = &Answer{At: now, Job: *plan.Job, Results: []Result{{SetKey: plan.Job.Sets[0], Generation: 1}}}
		seen.Attempt = Attempt{}.AddReached(seen.Attempt, seen.Answer)
	}
	if plan := Decide(seen); !plan.Status.SyncedResume.Equal(&resume) || plan.Status.LastSyncTime.Before(seen.Status.LastSyncTime) {
		t.Errorf("expected a sync of the resume after %v, found %+v", done, plan.Status)
	}
	seen.Answer = nil
	seen.Status.SyncedResume, seen.Sets = nil, seen.Sets[:2]
	seen.Attempt.Reached = map[SetKey]int64{{Name: "a"}: 1, {Name: "b"}: 1}
	if plan := Decide(seen); plan.Job != nil || !plan.Status.SyncedResume.Equal(&resume) {
		t.Errorf("expected a sync to be complete whose last set is deleted, found %+v", plan)
	}
}

func fingerprintOf(o Observed) string {
	return (&situation{Observed: o}).fingerprint()
}

// describe returns the part of the message of Failed that a row expects, or the whole message if it lacks that part.
func describe(plan Plan, failed string) decided {
	d := decided{rule: plan.Rule, synced: plan.Synced.Reason}
	if plan.Failed.Status == metav1.ConditionTrue {
		if d.failed = plan.Failed.Message; failed != "" && strings.Contains(d.failed, failed) {
			d.failed = failed
		}
	}
	if plan.Job != nil {
		d.isFull = plan.Job.IsFull
		for _, set := range plan.Job.Sets {
			d.sets = append(d.sets, set.Name)
		}
		for _, r := range plan.Job.Delete {
			d.deleted = append(d.deleted, r.Name)
		}
	}
	for _, status := range append(plan.Status.SyncSets, plan.Status.SelectorSyncSets...) {
		for _, r := range status.ResourcesToDelete {
			d.recorded = append(d.recorded, r.Name)
		}
	}
	return d
}

func TestTooManyObjectsOfTheModeSyncAreRefused(t *testing.T) {
	many := deletingSet("many", 1)
	for range maxReferences + 1 {
		many.References = append(many.References, object("o"))
	}
	plan := Decide(observed([]ObservedSet{deletingSet("few", 1, object("a")), many}, applied("few", object("a"))))
	if plan.Job != nil || !strings.Contains(plan.Failed.Message, "Expected at most 5000 objects") {
		t.Errorf("expected the set to be refused, found %+v", plan)
	}
}

// A cluster refuses to delete the earlier objects of a set, whose content then changes completely.
func TestSetsWaitForDeletionsBeforeTheirRecordIsFull(t *testing.T) {
	var earlier, later []Reference
	for i := range maxRecorded {
		earlier = append(earlier, object(fmt.Sprintf("earlier-%d", i)))
	}
	for i := range 500 {
		later = append(later, object(fmt.Sprintf("later-%d", i)))
	}
	seen := observed([]ObservedSet{deletingSet("s", 2, later...)}, applied("s", earlier...))
	plan := Decide(seen)
	if plan.Job == nil || len(plan.Job.Sets) > 0 || len(plan.Job.Delete) != maxRecorded || len(plan.Status.SyncSets[0].ResourcesToDelete) != maxRecorded {
		t.Fatalf("expected a job that only deletes the recorded objects, found %+v by %q", plan.Job, plan.Rule)
	}
	if want := "Expected at most 2000 recorded objects of a set, found 2000, 2000 of them to be deleted, and 500 new ones"; !strings.Contains(plan.Failed.Message, want) {
		t.Errorf("expected the message %q, found %q", want, plan.Failed.Message)
	}
	seen.Status = plan.Status
	if again := Decide(seen); !cmp.Equal(plan.Status, again.Status) {
		t.Errorf("expected the same status in the next pass, found:\n%s", cmp.Diff(plan.Status, again.Status))
	}
	seen.Answer = &Answer{Job: *plan.Job, Deleted: earlier[:500], At: now}
	if plan = Decide(seen); plan.Rule != "objects to apply are recorded" || len(plan.Status.SyncSets[0].ResourcesToDelete) != maxRecorded {
		t.Errorf("expected the new objects to be recorded after 500 deletions, found rule %q and %d objects", plan.Rule, len(plan.Status.SyncSets[0].ResourcesToDelete))
	}
}

func TestFailuresAreCutBetweenCharacters(t *testing.T) {
	all := statuses{}
	all.note(Result{SetKey: SetKey{Name: "s"}, Failure: strings.Repeat("é", maxMessageBytes)}, new(metav1.NewTime(time.Unix(0, 0))))
	if message := all[SetKey{Name: "s"}].FailureMessage; !utf8.ValidString(message) || len(message) > maxMessageBytes || len(message) < maxMessageBytes-utf8.UTFMax {
		t.Errorf("expected whole characters of at most %d bytes, found %d bytes", maxMessageBytes, len(message))
	}
	all.note(Result{SetKey: SetKey{Name: "s"}, Failure: "a" + strings.Repeat("é", maxMessageBytes)}, new(metav1.NewTime(time.Unix(0, 0))))
	if message := all[SetKey{Name: "s"}].FailureMessage; !utf8.ValidString(message) {
		t.Errorf("expected whole characters, found %q", message[len(message)-4:])
	}
}
