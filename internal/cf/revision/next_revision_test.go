// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	on, off    = korifiv1alpha1.StartedState, korifiv1alpha1.StoppedState
	request    = torporv1alpha1.RestartRequestAnnotation
	deployment = torporv1alpha1.DeploymentAnnotation
	pinned     = torporv1alpha1.DropletAnnotation
	rev, last  = korifiv1alpha1.RevisionAnnotation, korifiv1alpha1.LastStopRevisionAnnotation
)

// newApp returns an app with a desired state, annotations, and the droplet "new".
func newApp(state korifiv1alpha1.AppState, annotations map[string]string) *korifiv1alpha1.CFApp {
	a := &korifiv1alpha1.CFApp{}
	a.Name, a.Annotations = "app", map[string]string{}
	maps.Copy(a.Annotations, annotations)
	a.Spec.DesiredState, a.Spec.CurrentDropletRef = state, &korifiv1alpha1.Reference{Name: "new"}
	return a
}

// revisionAnnotations returns the annotations for a revision, and additional key-value pairs. It omits empty values.
func revisionAnnotations(revision, lastStop string, more ...string) map[string]string {
	all := map[string]string{}
	for i, pairs := 0, append([]string{rev, revision, last, lastStop}, more...); i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all[pairs[i]] = pairs[i+1]
		}
	}
	return all
}

func TestNextRevision(t *testing.T) {
	const stop, restart, deploy, repair = korifiv1alpha1.CausedByStop, korifiv1alpha1.CausedByRestart, korifiv1alpha1.CausedByDeployment, korifiv1alpha1.CausedByRepair
	running := revisionAnnotations("4", "3", pinned, "old")
	for name, row := range map[string]struct {
		old, updated *korifiv1alpha1.CFApp
		observed     int64
		want         RevisionState
	}{
		"a new app has revision 0":                                           {nil, newApp(off, nil), 0, RevisionState{0, 0, "", ""}},
		"a new started app runs its droplet":                                 {nil, newApp(on, nil), 0, RevisionState{0, 0, "new", ""}},
		"a new app with a revision annotation keeps the revision":            {nil, newApp(off, revisionAnnotations("7", "3")), 0, RevisionState{7, 7, "", ""}},
		"a stop begins a revision":                                           {newApp(on, running), newApp(off, running), 4, RevisionState{5, 5, "", stop}},
		"a stop begins a revision even if the status is outdated":            {newApp(on, running), newApp(off, running), 0, RevisionState{5, 5, "", stop}},
		"an unrelated update of a stopped app begins no revision":            {newApp(off, revisionAnnotations("5", "5")), newApp(off, revisionAnnotations("5", "5", "x", "y")), 0, RevisionState{5, 5, "", ""}},
		"a repeated stop begins no revision":                                 {newApp(off, revisionAnnotations("5", "5")), newApp(off, revisionAnnotations("5", "5")), 5, RevisionState{5, 5, "", ""}},
		"a stop that is admitted twice begins one revision":                  {newApp(on, running), newApp(off, revisionAnnotations("5", "5")), 4, RevisionState{5, 5, "", stop}},
		"a start begins no revision, and runs the current droplet":           {newApp(off, revisionAnnotations("5", "5")), newApp(on, revisionAnnotations("5", "5")), 5, RevisionState{5, 5, "new", ""}},
		"an unrelated update of a started app begins no revision":            {newApp(on, running), newApp(on, revisionAnnotations("4", "3", pinned, "old", "x", "y")), 4, RevisionState{4, 3, "old", ""}},
		"an assigned droplet is not used before the next revision":           {newApp(on, running), newApp(on, running), 4, RevisionState{4, 3, "old", ""}},
		"the first droplet of a started app is used immediately":             {newApp(on, revisionAnnotations("4", "3")), newApp(on, revisionAnnotations("4", "3")), 4, RevisionState{4, 3, "new", ""}},
		"a restart request begins a revision":                                {newApp(on, running), newApp(on, revisionAnnotations("4", "3", pinned, "old", request, "r1")), 4, RevisionState{5, 5, "new", restart}},
		"an unchanged restart request begins no revision":                    {newApp(on, revisionAnnotations("5", "5", pinned, "new", request, "r1")), newApp(on, revisionAnnotations("5", "5", pinned, "new", request, "r1")), 5, RevisionState{5, 5, "new", ""}},
		"a changed restart request begins another revision":                  {newApp(on, revisionAnnotations("5", "5", pinned, "new", request, "r1")), newApp(on, revisionAnnotations("5", "5", pinned, "new", request, "r2")), 5, RevisionState{6, 6, "new", restart}},
		"a removed restart request begins no revision":                       {newApp(on, revisionAnnotations("5", "5", pinned, "new", request, "r1")), newApp(on, revisionAnnotations("5", "5", pinned, "new")), 5, RevisionState{5, 5, "new", ""}},
		"a restart of a stopped app starts it without a new revision":        {newApp(off, revisionAnnotations("5", "5")), newApp(on, revisionAnnotations("5", "5", request, "r1")), 5, RevisionState{5, 5, "new", ""}},
		"a restart request for an app that stays stopped begins no revision": {newApp(off, revisionAnnotations("5", "5")), newApp(off, revisionAnnotations("5", "5", request, "r1")), 5, RevisionState{5, 5, "", ""}},
		"a stop with a restart request begins one revision":                  {newApp(on, running), newApp(off, revisionAnnotations("4", "3", pinned, "old", request, "r1")), 4, RevisionState{5, 5, "", stop}},
		"a deployment begins a revision and keeps the last stop":             {newApp(on, running), newApp(on, revisionAnnotations("4", "3", pinned, "old", deployment, "d1")), 4, RevisionState{5, 3, "new", deploy}},
		"a repeated deployment begins no revision":                           {newApp(on, revisionAnnotations("5", "3", pinned, "new", deployment, "d1")), newApp(on, revisionAnnotations("5", "3", pinned, "new", deployment, "d1")), 5, RevisionState{5, 3, "new", ""}},
		"a deployment of a stopped app starts it without a new revision":     {newApp(off, revisionAnnotations("5", "5")), newApp(on, revisionAnnotations("5", "5", deployment, "d1")), 5, RevisionState{5, 5, "new", ""}},
		"a restart together with a deployment counts as a restart":           {newApp(on, running), newApp(on, revisionAnnotations("4", "3", pinned, "old", request, "r", deployment, "d")), 4, RevisionState{5, 5, "new", restart}},
		"an app that is replaced without its annotations keeps its revision": {newApp(on, running), newApp(on, nil), 4, RevisionState{4, 3, "old", ""}},
		"a stop of an app without annotations begins revision 1":             {newApp(on, nil), newApp(off, nil), 0, RevisionState{1, 1, "", stop}},

		"a revision that is not a number is repaired from the observed revision": {newApp(on, revisionAnnotations("abc", "")), newApp(on, revisionAnnotations("abc", "")), 7, RevisionState{8, 8, "new", repair}},
		"a lowered revision is repaired from the observed revision":              {newApp(on, revisionAnnotations("2", "")), newApp(on, revisionAnnotations("2", "")), 7, RevisionState{8, 8, "new", repair}},
		"a missing revision is repaired from the observed revision":              {newApp(on, nil), newApp(off, nil), 7, RevisionState{8, 8, "", repair}},
		"a repair accepts a revision above the observed one":                     {newApp(on, revisionAnnotations("abc", "")), newApp(on, revisionAnnotations("12", "")), 7, RevisionState{12, 12, "new", repair}},
		"a repair never goes below the observed revision":                        {newApp(on, revisionAnnotations("abc", "")), newApp(on, nil), 7, RevisionState{8, 8, "new", repair}},
		"a stop of an app with an unreadable revision repairs the revision":      {newApp(on, revisionAnnotations("abc", "")), newApp(off, revisionAnnotations("abc", "")), 7, RevisionState{8, 8, "", repair}},
		"a repair without an observed revision sets revision 1":                  {newApp(on, revisionAnnotations("abc", "")), newApp(off, revisionAnnotations("abc", "")), 0, RevisionState{1, 1, "", repair}},
	} {
		t.Run(name, func(t *testing.T) {
			if row.old != nil {
				row.old.Status.ObservedRevision = row.observed
			}
			got, err := NextRevision(row.old, row.updated)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNextRevisionRefusesEdits(t *testing.T) {
	running := revisionAnnotations("4", "3", pinned, "old", torporv1alpha1.RevisedByAnnotation, "alice")
	with := func(key, value string) *korifiv1alpha1.CFApp {
		a := newApp(on, running)
		a.Annotations[key] = value
		return a
	}
	for name, row := range map[string]struct {
		old, updated *korifiv1alpha1.CFApp
		says         string
	}{
		"a lowered revision is refused": {newApp(on, running), with(rev, "1"), `metadata.annotations[korifi.cloudfoundry.org/app-rev]: expected "4", which Torpor has set; ` +
			`found "1"; leave the annotation unchanged, and set torpor.dev/restart-request to a new value to restart the app`},
		"a raised revision is refused":                                {newApp(on, running), with(rev, "5"), `[korifi.cloudfoundry.org/app-rev]: expected "4"`},
		"a revision that is not a number is refused":                  {newApp(on, running), with(rev, "abc"), `expected "4", which Torpor has set; found "abc"`},
		"an empty revision is refused":                                {newApp(on, running), with(rev, ""), `expected "4", which Torpor has set; found ""`},
		"a new app with a revision that is not a number is refused":   {nil, with(rev, "abc"), `metadata.annotations[korifi.cloudfoundry.org/app-rev]: expected a number such as "0", found "abc"; leave the annotation out`},
		"a changed last stop is refused":                              {newApp(on, running), with(last, "4"), `[korifi.cloudfoundry.org/last-stop-app-rev]: expected "3"`},
		"a changed pinned droplet is refused":                         {newApp(on, running), with(pinned, "new"), `[torpor.dev/droplet]: expected "old"`},
		"a changed author of the revision is refused":                 {newApp(on, running), with(torporv1alpha1.RevisedByAnnotation, "bob"), `[torpor.dev/revised-by]: expected "alice"`},
		"a changed time of the revision is refused":                   {newApp(on, running), with(torporv1alpha1.RevisedAtAnnotation, "now"), `[torpor.dev/revised-at]: expected ""`},
		"a changed cause of the revision is refused":                  {newApp(on, running), with(torporv1alpha1.CauseAnnotation, "Whim"), `[torpor.dev/revised-because]: expected ""`},
		"changed ended revisions are refused":                         {newApp(on, running), with(torporv1alpha1.EndedRevisionsAnnotation, "[]"), `[torpor.dev/ended-revisions]: expected ""`},
		"a stop that also edits the revision is refused":              {newApp(on, running), newApp(off, revisionAnnotations("6", "3")), `expected "5", which Torpor has set; found "6"`},
		"a stop of an app at the last possible revision is refused":   {newApp(on, revisionAnnotations("999999999", "0")), newApp(off, nil), "expected at most 999999999, found no revision left; create a new app"},
		"a repair of an app at the last possible revision is refused": {newUnreadableApp(MaxRevision), newApp(off, nil), "no revision left"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NextRevision(row.old, row.updated); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("found %v, want %s", err, row.says)
			}
		})
	}
}

func newUnreadableApp(observed int64) *korifiv1alpha1.CFApp {
	a := newApp(on, revisionAnnotations("abc", ""))
	a.Status.ObservedRevision = observed
	return a
}

// Race a of docs/adr/0010-revisions-of-apps.md: each stop increments the revision, regardless of the state of the
// controllers, and LRP names are unique.
func TestTwoHundredRestarts(t *testing.T) {
	a, names := admitApp(t, nil, newApp(on, nil)), map[string]bool{}
	for i := range 200 {
		names[LRPName(guid, int64(i))] = true
		for _, state := range []korifiv1alpha1.AppState{off, off, on, on} {
			changed := a.DeepCopy()
			changed.Spec.DesiredState = state
			a = admitApp(t, a, changed)
		}
		if got := a.Annotations[rev]; got != strconv.Itoa(i+1) {
			t.Fatalf("found revision %s after %d restarts", got, i+1)
		}
	}
	if len(names) != 200 {
		t.Errorf("found %d names for 200 revisions", len(names))
	}
}

// Race c of docs/adr/0010-revisions-of-apps.md: each of several restarts within one second begins a revision, and a
// repeated restart begins none.
func TestRestartsInOneSecondAreEachCounted(t *testing.T) {
	a := admitApp(t, nil, newApp(on, nil))
	for _, value := range []string{"a", "b", "b", "c", "c", "a"} {
		changed := a.DeepCopy()
		changed.Annotations[request] = value
		a = admitApp(t, a, changed)
	}
	if got := a.Annotations[rev]; got != "4" {
		t.Errorf("found revision %s, want 4: a, b, c, and a again", got)
	}
}

func TestRevisionAuthorAndTimeAreKeptUntilTheNextRevision(t *testing.T) {
	a := admitApp(t, nil, newApp(on, nil))
	changed := a.DeepCopy()
	changed.Annotations[request] = "r1"
	a = admitApp(t, a, changed)
	want := map[string]string{
		rev: "1", last: "1", pinned: "new", request: "r1", torporv1alpha1.CauseAnnotation: "Restart",
		torporv1alpha1.RevisedByAnnotation: "alice", torporv1alpha1.RevisedAtAnnotation: "2026-11-21T01:00:00Z",
		torporv1alpha1.EndedRevisionsAnnotation: `[{"revision":0,"cause":"Creation","at":null,"droplet":"new"}]`,
	}
	if diff := cmp.Diff(want, a.Annotations); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	changed = a.DeepCopy()
	changed.Spec.DisplayName = "other"
	if diff := cmp.Diff(want, admitApp(t, a, changed).Annotations); diff != "" {
		t.Errorf("after an update (-want +got):\n%s", diff)
	}
}

// A start begins no revision. Its author is recorded until the next revision begins.
func TestStartRequesterIsKeptUntilTheNextRevision(t *testing.T) {
	a := admitApp(t, nil, newApp(off, nil))
	for _, step := range []struct {
		state          korifiv1alpha1.AppState
		restart, start string
	}{{on, "", "alice"}, {on, "", "alice"}, {on, "r1", ""}, {off, "r1", ""}, {off, "r1", ""}, {on, "r1", "alice"}, {off, "r1", ""}} {
		changed := a.DeepCopy()
		changed.Spec.DesiredState = step.state
		if changed.Annotations[request] = step.restart; step.restart == "" {
			delete(changed.Annotations, request)
		}
		a = admitApp(t, a, changed)
		if by, at := a.Annotations[torporv1alpha1.StartedByAnnotation], a.Annotations[torporv1alpha1.StartedAtAnnotation]; by != step.start || (at == "") != (by == "") {
			t.Fatalf("%+v: found it started by %q at %q", step, by, at)
		}
	}
	forged := a.DeepCopy()
	forged.Annotations[torporv1alpha1.StartedByAnnotation] = "bob"
	if _, err := NextRevision(a, forged); err == nil {
		t.Error("found no error for a start with another user's name")
	}
}

func TestValidateRevisionFindsForeignChanges(t *testing.T) {
	a := admitApp(t, nil, newApp(on, nil))
	stopped := a.DeepCopy()
	stopped.Spec.DesiredState = off
	for name, break_ := range map[string]func(map[string]string){
		"a stop with an unchanged revision is refused":   func(m map[string]string) { m[rev] = "0" },
		"a stop with a missing revision is refused":      func(m map[string]string) { delete(m, rev) },
		"a stop with another author is refused":          func(m map[string]string) { m[torporv1alpha1.RevisedByAnnotation] = "bob" },
		"a stop with a missing cause is refused":         func(m map[string]string) { delete(m, torporv1alpha1.CauseAnnotation) },
		"a stop with missing ended revisions is refused": func(m map[string]string) { delete(m, torporv1alpha1.EndedRevisionsAnnotation) },
	} {
		t.Run(name, func(t *testing.T) {
			after := admitApp(t, a, stopped.DeepCopy())
			break_(after.Annotations)
			if err := ValidateRevisionAnnotations(a, after, "alice"); err == nil {
				t.Error("found no error")
			}
		})
	}
	unasked := a.DeepCopy()
	delete(unasked.Annotations, rev)
	if err := ValidateRevisionAnnotations(a, unasked, "alice"); err == nil {
		t.Error("found no error for a revision that admission did not restore")
	}
}

// admitApp applies the mutating and the validating admission to a change, and returns the result.
func admitApp(t testing.TB, old, updated *korifiv1alpha1.CFApp) *korifiv1alpha1.CFApp {
	t.Helper()
	m, err := NextRevision(old, updated)
	if err != nil {
		t.Fatal(err)
	}
	SetRevisionAnnotations(old, updated, m, "alice", time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC))
	if err := ValidateRevisionAnnotations(old, updated, "alice"); err != nil {
		t.Fatalf("admission rejects its own result: %v", err)
	}
	return updated
}

// FuzzNextRevision checks three properties for any annotations: the revision never decreases, admitting a change twice
// has the same result, and the result passes validation.
func FuzzNextRevision(f *testing.F) {
	f.Add("0", "0", "", "", int64(0), true, false)
	f.Add("7", "3", "8", "r1", int64(7), true, true)
	f.Add("abc", "bad value!", "-1", "", int64(3), true, false)
	f.Add("999999999", "", "", "x", int64(999999999), true, true)
	f.Fuzz(func(t *testing.T, revision, lastStop, proposed, asked string, observed int64, was, is bool) {
		if observed < 0 || observed > MaxRevision {
			t.Skip("status.observedRevision is written by Torpor only")
		}
		states := map[bool]korifiv1alpha1.AppState{true: on, false: off}
		old, updated := newApp(states[was], revisionAnnotations(revision, lastStop)), newApp(states[is], revisionAnnotations(proposed, "", request, asked))
		old.Status.ObservedRevision = observed
		m, err := NextRevision(old, updated)
		if err != nil {
			return
		}
		before, _, unreadable := ReadRevision(old)
		if m.Revision < before || m.Revision < observed || m.LastStop > m.Revision || m.Revision > MaxRevision {
			t.Fatalf("found %+v after %d, with the observed revision %d", m, before, observed)
		}
		if unreadable == "" && m.Revision > before+1 {
			t.Fatalf("found %+v after %d", m, before)
		}
		after := updated.DeepCopy()
		SetRevisionAnnotations(old, after, m, "alice", time.Time{})
		if err := ValidateRevisionAnnotations(old, after, "alice"); err != nil {
			t.Fatalf("admission rejects its own result: %v", err)
		}
		again, err := NextRevision(after, after.DeepCopy())
		if err != nil || again.Revision != m.Revision || again.Cause != "" {
			t.Fatalf("found %+v (%v), want the same again", again, err)
		}
	})
}
