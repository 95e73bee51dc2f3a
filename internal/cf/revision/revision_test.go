// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"testing"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

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
		"an app without annotations has the first revision":                               {nil, 0, 0, 0, false},
		"an app has the revision of its annotation":                                       {revisionAnnotations("7", "5"), 7, 7, 5, false},
		"an app has the revision of its annotation even if a lower one was observed":      {revisionAnnotations("7", "5"), 6, 7, 5, false},
		"an app without an annotation of the last stop has its revision as the last stop": {revisionAnnotations("7", ""), 7, 7, 7, false},
		"the last stop of an app is never above its revision":                             {revisionAnnotations("7", "9"), 7, 7, 7, false},
		"a revision annotation that is not a number is unreadable":                        {revisionAnnotations("abc", "5"), 0, 0, 0, true},
		"a missing revision annotation is unreadable after a revision was observed":       {nil, 3, 0, 0, true},
		"a revision below the observed one is unreadable":                                 {revisionAnnotations("2", "2"), 3, 0, 0, true},
		"a revision annotation that is not a valid label is unreadable":                   {revisionAnnotations("bad value!", "5"), 0, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(korifiv1alpha1.StartedState, row.annotations)
			a.Status.ObservedRevision = row.observed
			revision, lastStop, unreadable := ReadRevision(a)
			if revision != row.revision || lastStop != row.lastStop || (unreadable != "") != row.unreadable {
				t.Errorf("found %d, %d, %q", revision, lastStop, unreadable)
			}
		})
	}
}

func TestHighestRevisionCountsAnnotationsStatusAndLRPs(t *testing.T) {
	a := newApp(korifiv1alpha1.StartedState, revisionAnnotations("4", "4"))
	a.Status.ObservedRevision = 3
	if got := HighestRevision(a, []string{"2", "abc", ""}); got != 4 {
		t.Errorf("found %d, want the annotation's 4", got)
	}
	if got := HighestRevision(a, []string{"9", "x"}); got != 9 {
		t.Errorf("found %d, want the LRP's 9", got)
	}
	a.Annotations = revisionAnnotations("abc", "")
	if got := HighestRevision(a, nil); got != 3 {
		t.Errorf("found %d, want the status's 3", got)
	}
}
