// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// deployDroplet changes an app's droplet and restarts the app with a single change.
func deployDroplet(t *testing.T, a *korifiv1alpha1.CFApp, droplet string) *korifiv1alpha1.CFApp {
	t.Helper()
	changed := a.DeepCopy()
	changed.Annotations[request], changed.Spec.CurrentDropletRef = droplet, &korifiv1alpha1.Reference{Name: droplet}
	return admitApp(t, a, changed)
}

// listDroplets returns the droplets of the ended revisions, keyed by revision.
func listDroplets(a *korifiv1alpha1.CFApp) map[int64]string {
	droplets := map[int64]string{}
	for _, r := range ListRestarts(a) {
		droplets[r.Revision] = r.Droplet
	}
	return droplets
}

// record updates the status as the controller of apps does.
func record(a *korifiv1alpha1.CFApp) {
	current := DescribeCurrent(a)
	a.Status.Restarts, a.Status.ObservedRevision = append([]korifiv1alpha1.Restart{current}, ListRestarts(a)...), current.Revision
}

func TestRevisionsThatBeginWithinOneMomentKeepTheirDroplets(t *testing.T) {
	a := admitApp(t, nil, newApp(on, nil))
	for _, droplet := range []string{"d1", "d2", "d3"} {
		a = deployDroplet(t, a, droplet)
	}
	if diff := cmp.Diff(map[int64]string{0: "new", 1: "d1", 2: "d2"}, listDroplets(a)); diff != "" {
		t.Errorf("before the controller has observed the app (-want +got):\n%s", diff)
	}
	if last := ListRestarts(a)[0]; last.Cause != korifiv1alpha1.CausedByRestart || last.By != "alice" || last.At.IsZero() {
		t.Errorf("expected requester, cause and time, found %+v", last)
	}
	record(a)
	if diff := cmp.Diff(map[int64]string{0: "new", 1: "d1", 2: "d2", 3: "d3"}, listDroplets(a)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	a = deployDroplet(t, a, "d4")
	if found := a.Annotations[torporv1alpha1.EndedRevisionsAnnotation]; found != "" {
		t.Errorf("expected no revisions that the status has, found %s", found)
	}
}

// The revision of a stopped app is recorded before it has a droplet. The droplet must be recorded even if the revision
// ends directly after its start.
func TestARevisionThatEndsRightAfterItsStartKeepsItsDroplet(t *testing.T) {
	a := admitApp(t, nil, newApp(off, nil))
	record(a)
	for _, state := range []korifiv1alpha1.AppState{on, off} {
		changed := a.DeepCopy()
		changed.Spec.DesiredState = state
		a = admitApp(t, a, changed)
	}
	if first := ListRestarts(a); len(first) != 1 || first[0].Droplet != "new" || first[0].StartedBy != "alice" {
		t.Errorf("expected the first revision with its droplet and its start, found %+v", first)
	}
}

// Without a controller that records revisions, an app keeps at most MaxRestarts ended revisions, even if user names are
// long.
func TestEndedRevisionsHaveAMaximum(t *testing.T) {
	const times = 200
	for _, userNameBytes := range []int{0, 2000, 20_000} {
		a := admitApp(t, nil, newApp(on, nil))
		for i := range times {
			a = deployDroplet(t, a, fmt.Sprint("d", i))
			a.Annotations[torporv1alpha1.RevisedByAnnotation] += strings.Repeat("x", userNameBytes)
		}
		kept := readEndedRevisions(a)
		if size := len(a.Annotations[torporv1alpha1.EndedRevisionsAnnotation]); size > maxEndedBytes || len(kept) > MaxRestarts {
			t.Errorf("with names of %d bytes: found %d revisions in %d bytes", userNameBytes, len(kept), size)
		}
		if len(kept) > 0 && kept[len(kept)-1].Revision != times-1 || len(kept) == 0 && userNameBytes < maxEndedBytes {
			t.Errorf("with names of %d bytes: expected the newest revisions, found %d", userNameBytes, len(kept))
		}
	}
}

func TestUnreadableEndedRevisionsAreIgnored(t *testing.T) {
	for _, text := range []string{"", "[]", "{", `"a"`, "[" + strings.Repeat(" ", maxEndedBytes) + "]"} {
		a := newApp(on, revisionAnnotations("3", "3", torporv1alpha1.EndedRevisionsAnnotation, text))
		if found := ListRestarts(a); len(found) != 0 {
			t.Errorf("%.20q: found %+v", text, found)
		}
	}
}
