// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

const guid = "8d1b1d4c-2f4a-4d3e-9c55-0a1b2c3d4e5f"

// Race h: names of revisions that follow each other, or that are a million apart, never repeat. The part that tells
// revisions apart does not depend on the process, so that this holds for every process.
func TestRaceHNamesNeverRepeat(t *testing.T) {
	const revisions = 1_000_000
	seen := make(map[string]struct{}, revisions)
	for revision := range int64(revisions) {
		suffix := digits(FormatRevision(revision), revisionDigits)
		if _, ok := seen[suffix]; ok {
			t.Fatalf("revision %d has the name of an earlier one: %s", revision, suffix)
		}
		seen[suffix] = struct{}{}
	}
}

func TestName(t *testing.T) {
	for name, row := range map[string]struct{ process, prefix string }{
		"a GUID is kept":                     {guid, guid + "-"},
		"a short name is kept":               {"web", "web-"},
		"a long name is cut":                 {strings.Repeat("x", 63), strings.Repeat("x", 30) + "-"},
		"a name with a dot loses it":         {"a.b", "a-b-"},
		"a cut does not end in two dashes .": {strings.Repeat("x", 29) + "." + strings.Repeat("y", 30), strings.Repeat("x", 29) + "--"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, revision := range []int64{0, 1, MaxRevision} {
				got := Name(row.process, revision)
				if !strings.HasPrefix(got, row.prefix) {
					t.Errorf("found %s, want it to begin with %s", got, row.prefix)
				}
				if wrong := validation.IsDNS1035Label("a" + got); len(got) > 52 || len(wrong) > 0 {
					t.Errorf("found %s of %d characters, want at most 52 of a label: %v", got, len(got), wrong)
				}
			}
			if Name(row.process, 1) == Name(row.process, 2) || Name(row.process, 1) == Name(row.process+"x", 1) {
				t.Error("found the same name twice")
			}
		})
	}
	if Name("a.b", 1) == Name("a-b", 1) {
		t.Error("a dot and a dash have the same name")
	}
	long := strings.Repeat("x", 60)
	if Name(long+"a", 1) == Name(long+"b", 1) {
		t.Error("two processes whose names differ at the end have the same name")
	}
}

func TestParseRevision(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "999999999": MaxRevision,
		"": -1, "-1": -1, "+1": -1, "01": -1, " 1": -1, "1.0": -1, "abc": -1, "bad value!": -1, "1000000000": -1, "99999999999999999999": -1, "１": -1,
	} {
		got, ok := ParseRevision(text)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: found %d, %v", text, got, ok)
		}
	}
}

func TestRevisionOf(t *testing.T) {
	for name, row := range map[string]struct {
		annotations        map[string]string
		observed           int64
		revision, lastStop int64
		unreadable         bool
	}{
		"an app without annotations is at the first":              {nil, 0, 0, 0, false},
		"an app is at what its annotation says":                   {marked("7", "5"), 7, 7, 5, false},
		"also if that was not acted on yet":                       {marked("7", "5"), 6, 7, 5, false},
		"without a last stop that is the revision":                {marked("7", ""), 7, 7, 7, false},
		"a last stop from the future is the revision":             {marked("7", "9"), 7, 7, 7, false},
		"a word is no revision":                                   {marked("abc", "5"), 0, 0, 0, true},
		"an annotation that was lost is none":                     {nil, 3, 0, 0, true},
		"a revision below what was acted on is none":              {marked("2", "2"), 3, 0, 0, true},
		"a revision that is no label is none, and breaks nothing": {marked("bad value!", "5"), 0, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := app(korifiv1alpha1.StartedState, row.annotations)
			a.Status.ObservedRevision = row.observed
			revision, lastStop, unreadable := RevisionOf(a)
			if revision != row.revision || lastStop != row.lastStop || (unreadable != "") != row.unreadable {
				t.Errorf("found %d, %d, %q", revision, lastStop, unreadable)
			}
		})
	}
}

func TestHighestIsNeverBelowAnythingThatWasActedOn(t *testing.T) {
	a := app(korifiv1alpha1.StartedState, marked("4", "4"))
	a.Status.ObservedRevision = 3
	if got := Highest(a, []string{"2", "abc", ""}); got != 4 {
		t.Errorf("found %d, want the annotation's 4", got)
	}
	if got := Highest(a, []string{"9", "x"}); got != 9 {
		t.Errorf("found %d, want the LRP's 9", got)
	}
	a.Annotations = marked("abc", "")
	if got := Highest(a, nil); got != 3 {
		t.Errorf("found %d, want the status's 3", got)
	}
}
