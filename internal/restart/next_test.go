// SPDX-License-Identifier: Apache-2.0

package restart

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

// app is one in a state, with a droplet called new.
func app(state korifiv1alpha1.AppState, annotations map[string]string) *korifiv1alpha1.CFApp {
	a := &korifiv1alpha1.CFApp{}
	a.Name, a.Annotations = "app", map[string]string{}
	maps.Copy(a.Annotations, annotations)
	a.Spec.DesiredState, a.Spec.CurrentDropletRef = state, &korifiv1alpha1.Reference{Name: "new"}
	return a
}

// marked are the annotations of a revision, and more in pairs; an empty value is left out.
func marked(revision, lastStop string, more ...string) map[string]string {
	all := map[string]string{}
	for i, pairs := 0, append([]string{rev, revision, last, lastStop}, more...); i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all[pairs[i]] = pairs[i+1]
		}
	}
	return all
}

func TestNext(t *testing.T) {
	const stop, restart, deploy, repair = korifiv1alpha1.CausedByStop, korifiv1alpha1.CausedByRestart, korifiv1alpha1.CausedByDeployment, korifiv1alpha1.CausedByRepair
	running := marked("4", "3", pinned, "old")
	for name, row := range map[string]struct {
		old, updated *korifiv1alpha1.CFApp
		observed     int64
		want         Marks
	}{
		"a new app is at 0":                                    {nil, app(off, nil), 0, Marks{0, 0, "", ""}},
		"a new app that is started runs its droplet":           {nil, app(on, nil), 0, Marks{0, 0, "new", ""}},
		"an app that is restored from elsewhere goes on":       {nil, app(off, marked("7", "3")), 0, Marks{7, 7, "", ""}},
		"a stop begins a revision":                             {app(on, running), app(off, running), 4, Marks{5, 5, "", stop}},
		"race a: also when the status lags":                    {app(on, running), app(off, running), 0, Marks{5, 5, "", stop}},
		"race a: an update while stopped begins none":          {app(off, marked("5", "5")), app(off, marked("5", "5", "x", "y")), 0, Marks{5, 5, "", ""}},
		"a stop sent again begins none":                        {app(off, marked("5", "5")), app(off, marked("5", "5")), 5, Marks{5, 5, "", ""}},
		"a stop that is counted twice is one":                  {app(on, running), app(off, marked("5", "5")), 4, Marks{5, 5, "", stop}},
		"a start begins none, and runs the current droplet":    {app(off, marked("5", "5")), app(on, marked("5", "5")), 5, Marks{5, 5, "new", ""}},
		"an update begins none":                                {app(on, running), app(on, marked("4", "3", pinned, "old", "x", "y")), 4, Marks{4, 3, "old", ""}},
		"race q: a droplet that is assigned waits":             {app(on, running), app(on, running), 4, Marks{4, 3, "old", ""}},
		"the first droplet of a started app does not":          {app(on, marked("4", "3")), app(on, marked("4", "3")), 4, Marks{4, 3, "new", ""}},
		"race j: a restart is one change":                      {app(on, running), app(on, marked("4", "3", pinned, "old", request, "r1")), 4, Marks{5, 5, "new", restart}},
		"race j: the same restart sent again is none":          {app(on, marked("5", "5", pinned, "new", request, "r1")), app(on, marked("5", "5", pinned, "new", request, "r1")), 5, Marks{5, 5, "new", ""}},
		"another restart is another":                           {app(on, marked("5", "5", pinned, "new", request, "r1")), app(on, marked("5", "5", pinned, "new", request, "r2")), 5, Marks{6, 6, "new", restart}},
		"a request that is taken away is none":                 {app(on, marked("5", "5", pinned, "new", request, "r1")), app(on, marked("5", "5", pinned, "new")), 5, Marks{5, 5, "new", ""}},
		"a restart of a stopped app is a start":                {app(off, marked("5", "5")), app(on, marked("5", "5", request, "r1")), 5, Marks{5, 5, "new", ""}},
		"a restart of an app that stays stopped is none":       {app(off, marked("5", "5")), app(off, marked("5", "5", request, "r1")), 5, Marks{5, 5, "", ""}},
		"a stop that also asks for a restart is one":           {app(on, running), app(off, marked("4", "3", pinned, "old", request, "r1")), 4, Marks{5, 5, "", stop}},
		"a deployment begins one that stops nothing":           {app(on, running), app(on, marked("4", "3", pinned, "old", deployment, "d1")), 4, Marks{5, 3, "new", deploy}},
		"race e: the same deployment again is none":            {app(on, marked("5", "3", pinned, "new", deployment, "d1")), app(on, marked("5", "3", pinned, "new", deployment, "d1")), 5, Marks{5, 3, "new", ""}},
		"a deployment of a stopped app is a start":             {app(off, marked("5", "5")), app(on, marked("5", "5", deployment, "d1")), 5, Marks{5, 5, "new", ""}},
		"a restart and a deployment at once are a restart":     {app(on, running), app(on, marked("4", "3", pinned, "old", request, "r", deployment, "d")), 4, Marks{5, 5, "new", restart}},
		"who replaces the object may not know the annotations": {app(on, running), app(on, nil), 4, Marks{4, 3, "old", ""}},
		"an app of before has revision 0":                      {app(on, nil), app(off, nil), 0, Marks{1, 1, "", stop}},

		"race d: a word is counted on from what was acted on":       {app(on, marked("abc", "")), app(on, marked("abc", "")), 7, Marks{8, 8, "new", repair}},
		"race d: so is a revision that fell":                        {app(on, marked("2", "")), app(on, marked("2", "")), 7, Marks{8, 8, "new", repair}},
		"race d: so is one that was lost":                           {app(on, nil), app(off, nil), 7, Marks{8, 8, "", repair}},
		"race d: whoever repairs knows more":                        {app(on, marked("abc", "")), app(on, marked("12", "")), 7, Marks{12, 12, "new", repair}},
		"race d: but nothing below what was acted on":               {app(on, marked("abc", "")), app(on, nil), 7, Marks{8, 8, "new", repair}},
		"race d: a stop of an app that cannot be read is one too":   {app(on, marked("abc", "")), app(off, marked("abc", "")), 7, Marks{8, 8, "", repair}},
		"race d: it never goes back to 0 where nothing is known of": {app(on, marked("abc", "")), app(off, marked("abc", "")), 0, Marks{1, 1, "", repair}},
	} {
		t.Run(name, func(t *testing.T) {
			if row.old != nil {
				row.old.Status.ObservedRevision = row.observed
			}
			got, err := Next(row.old, row.updated)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNextRefusesEdits(t *testing.T) {
	running := marked("4", "3", pinned, "old", torporv1alpha1.RevisedByAnnotation, "alice")
	with := func(key, value string) *korifiv1alpha1.CFApp {
		a := app(on, running)
		a.Annotations[key] = value
		return a
	}
	for name, row := range map[string]struct {
		old, updated *korifiv1alpha1.CFApp
		says         string
	}{
		"race d: a revision that falls": {app(on, running), with(rev, "1"), `metadata.annotations[korifi.cloudfoundry.org/app-rev]: expected "4", because Torpor keeps it; ` +
			`found "1"; leave it as it is, and set torpor.dev/restart-request to a new value to restart`},
		"race d: a revision that rises":            {app(on, running), with(rev, "5"), `[korifi.cloudfoundry.org/app-rev]: expected "4"`},
		"race d: a word":                           {app(on, running), with(rev, "abc"), `expected "4", because Torpor keeps it; found "abc"`},
		"race d: nothing":                          {app(on, running), with(rev, ""), `expected "4", because Torpor keeps it; found ""`},
		"race d: a word at creation":               {nil, with(rev, "abc"), `metadata.annotations[korifi.cloudfoundry.org/app-rev]: expected a number such as "0", found "abc"; leave the annotation out`},
		"a last stop":                              {app(on, running), with(last, "4"), `[korifi.cloudfoundry.org/last-stop-app-rev]: expected "3"`},
		"the droplet that runs":                    {app(on, running), with(pinned, "new"), `[torpor.dev/droplet]: expected "old"`},
		"who restarted":                            {app(on, running), with(torporv1alpha1.RevisedByAnnotation, "bob"), `[torpor.dev/revised-by]: expected "alice"`},
		"when":                                     {app(on, running), with(torporv1alpha1.RevisedAtAnnotation, "now"), `[torpor.dev/revised-at]: expected ""`},
		"why":                                      {app(on, running), with(torporv1alpha1.CauseAnnotation, "Whim"), `[torpor.dev/revised-because]: expected ""`},
		"a stop with a revision of its own":        {app(on, running), app(off, marked("6", "3")), `expected "5", because Torpor keeps it; found "6"`},
		"an app that has used up all revisions":    {app(on, marked("999999999", "0")), app(off, nil), "expected at most 999999999, found no revision left; make a new app"},
		"an app that cannot be counted on, nor up": {unreadableAt(MaxRevision), app(off, nil), "no revision left"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Next(row.old, row.updated); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("found %v, want %s", err, row.says)
			}
		})
	}
}

func unreadableAt(observed int64) *korifiv1alpha1.CFApp {
	a := app(on, marked("abc", ""))
	a.Status.ObservedRevision = observed
	return a
}

// The seed's decision: each stop raises the revision by one, whatever the controllers have seen, and no name repeats.
func TestTwoHundredRestarts(t *testing.T) {
	a, names := admitted(t, nil, app(on, nil)), map[string]bool{}
	for i := range 200 {
		names[Name(guid, int64(i))] = true
		for _, state := range []korifiv1alpha1.AppState{off, off, on, on} {
			changed := a.DeepCopy()
			changed.Spec.DesiredState = state
			a = admitted(t, a, changed)
		}
		if got := a.Annotations[rev]; got != strconv.Itoa(i+1) {
			t.Fatalf("found revision %s after %d restarts", got, i+1)
		}
	}
	if len(names) != 200 {
		t.Errorf("found %d names for 200 revisions", len(names))
	}
}

// Race c: of restarts in one second each is counted, and one that is sent twice is counted once.
func TestRaceCRestartsInOneSecond(t *testing.T) {
	a := admitted(t, nil, app(on, nil))
	for _, value := range []string{"a", "b", "b", "c", "c", "a"} {
		changed := a.DeepCopy()
		changed.Annotations[request] = value
		a = admitted(t, a, changed)
	}
	if got := a.Annotations[rev]; got != "4" {
		t.Errorf("found revision %s, want 4: a, b, c, and a again", got)
	}
}

func TestWhoAndWhenAreKeptUntilTheNextRevision(t *testing.T) {
	a := admitted(t, nil, app(on, nil))
	changed := a.DeepCopy()
	changed.Annotations[request] = "r1"
	a = admitted(t, a, changed)
	want := map[string]string{
		rev: "1", last: "1", pinned: "new", request: "r1", torporv1alpha1.CauseAnnotation: "Restart",
		torporv1alpha1.RevisedByAnnotation: "alice", torporv1alpha1.RevisedAtAnnotation: "2026-11-21T01:00:00Z",
	}
	if diff := cmp.Diff(want, a.Annotations); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	changed = a.DeepCopy()
	changed.Spec.DisplayName = "other"
	if diff := cmp.Diff(want, admitted(t, a, changed).Annotations); diff != "" {
		t.Errorf("after an update (-want +got):\n%s", diff)
	}
}

func TestCheckSeesWhatOthersChanged(t *testing.T) {
	a := admitted(t, nil, app(on, nil))
	stopped := a.DeepCopy()
	stopped.Spec.DesiredState = off
	for name, break_ := range map[string]func(map[string]string){
		"the revision is as before": func(m map[string]string) { m[rev] = "0" },
		"the revision is missing":   func(m map[string]string) { delete(m, rev) },
		"it is somebody else":       func(m map[string]string) { m[torporv1alpha1.RevisedByAnnotation] = "bob" },
		"the cause is another":      func(m map[string]string) { delete(m, torporv1alpha1.CauseAnnotation) },
	} {
		t.Run(name, func(t *testing.T) {
			after := admitted(t, a, stopped.DeepCopy())
			break_(after.Annotations)
			if err := Check(a, after, "alice"); err == nil {
				t.Error("found nothing wrong")
			}
		})
	}
	unasked := a.DeepCopy()
	delete(unasked.Annotations, rev)
	if err := Check(a, unasked, "alice"); err == nil {
		t.Error("found nothing wrong with a revision that admission did not restore")
	}
}

// admitted is what the mutating and the validating half of admission make of a change.
func admitted(t testing.TB, old, updated *korifiv1alpha1.CFApp) *korifiv1alpha1.CFApp {
	t.Helper()
	m, err := Next(old, updated)
	if err != nil {
		t.Fatal(err)
	}
	Annotate(old, updated, m, "alice", time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC))
	if err := Check(old, updated, "alice"); err != nil {
		t.Fatalf("what admission wrote does not pass: %v", err)
	}
	return updated
}

// FuzzNext: whatever stands in the annotations, the revision never falls, what is counted twice is the same, and what
// admission writes passes its own check.
func FuzzNext(f *testing.F) {
	f.Add("0", "0", "", "", int64(0), true, false)
	f.Add("7", "3", "8", "r1", int64(7), true, true)
	f.Add("abc", "bad value!", "-1", "", int64(3), true, false)
	f.Add("999999999", "", "", "x", int64(999999999), true, true)
	f.Fuzz(func(t *testing.T, revision, lastStop, proposed, asked string, observed int64, was, is bool) {
		if observed < 0 || observed > MaxRevision {
			t.Skip("status.observedRevision is written by Torpor only")
		}
		states := map[bool]korifiv1alpha1.AppState{true: on, false: off}
		old, updated := app(states[was], marked(revision, lastStop)), app(states[is], marked(proposed, "", request, asked))
		old.Status.ObservedRevision = observed
		m, err := Next(old, updated)
		if err != nil {
			return
		}
		before, _, unreadable := RevisionOf(old)
		if m.Revision < before || m.Revision < observed || m.LastStop > m.Revision || m.Revision > MaxRevision {
			t.Fatalf("found %+v after %d, of which %d was acted on", m, before, observed)
		}
		if unreadable == "" && m.Revision > before+1 {
			t.Fatalf("found %+v after %d", m, before)
		}
		after := updated.DeepCopy()
		Annotate(old, after, m, "alice", time.Time{})
		if err := Check(old, after, "alice"); err != nil {
			t.Fatalf("what admission wrote does not pass: %v", err)
		}
		again, err := Next(after, after.DeepCopy())
		if err != nil || again.Revision != m.Revision || again.Cause != "" {
			t.Fatalf("found %+v (%v), want the same again", again, err)
		}
	})
}
