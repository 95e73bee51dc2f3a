// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

func TestRevisionsOf(t *testing.T) {
	made := metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	later := metav1.NewTime(made.Add(time.Hour))
	initial := AppRevision{GUID: "a-0", CreatedAt: "2026-11-20T12:00:00Z", Description: "Initial revision.", Deployable: true, Droplet: Reference{GUID: "d1"}}
	second := AppRevision{GUID: "a-1", Version: 1, CreatedAt: "2026-11-20T13:00:00Z", Description: "Restart by alice", Deployable: true, Droplet: Reference{GUID: "d1"}}
	third := AppRevision{GUID: "a-2", Version: 2, CreatedAt: "2026-11-20T13:00:00Z", Description: "Stop by bob"}
	known := []korifiv1alpha1.Restart{{Revision: 1, Cause: korifiv1alpha1.CausedByRestart, By: "alice", At: later, Droplet: "d1"}}
	stopped := map[string]string{
		korifiv1alpha1.RevisionAnnotation: "2", torporv1alpha1.CauseAnnotation: "Stop", torporv1alpha1.RevisedByAnnotation: "bob",
		torporv1alpha1.RevisedAtAnnotation: later.UTC().Format(time.RFC3339),
	}
	endedFirst := map[string]string{
		korifiv1alpha1.RevisionAnnotation:       "1",
		torporv1alpha1.EndedRevisionsAnnotation: `[{"revision":0,"cause":"Creation","at":"2026-11-20T12:00:00Z","droplet":"d1"}]`,
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		droplet     string
		known       []korifiv1alpha1.Restart
		want        []AppRevision
	}{
		"the first revision of a new app is shown before the controller has recorded it": {map[string]string{korifiv1alpha1.RevisionAnnotation: "0"}, "d1", nil, []AppRevision{initial}},
		"the last ended revision is shown before the controller has recorded it":         {endedFirst, "d2", known, []AppRevision{second, initial}},
		"the current revision is shown before the controller has recorded it":            {stopped, "", known, []AppRevision{third, second}},
	} {
		t.Run(name, func(t *testing.T) {
			app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: made, Annotations: test.annotations}}
			if test.droplet != "" {
				app.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: test.droplet}
			}
			app.Status.Restarts = test.known
			got := ForRevisions("https://cf", app)
			for i := range got {
				got[i].Links, got[i].UpdatedAt = nil, ""
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestAuditEventsNameTheUser uses a revision that the controller has not recorded yet.
func TestAuditEventsNameTheUser(t *testing.T) {
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{
		korifiv1alpha1.RevisionAnnotation: "1", torporv1alpha1.CauseAnnotation: "Stop", torporv1alpha1.RevisedByAnnotation: "bob",
		torporv1alpha1.RevisedAtAnnotation: "2026-11-20T13:00:00Z",
	}}}
	all := ForAuditEvents(app, nil)
	if len(all) != 1 || all[0].Type != "audit.app.stop" || all[0].Actor.Name != "bob" || all[0].CreatedAt != "2026-11-20T13:00:00Z" {
		t.Errorf("found %+v, want that bob stopped it", all)
	}
}

// TestRevisionIsOneAuditEvent passes an app with a revision, the Kubernetes event for this revision, and another event.
func TestRevisionIsOneAuditEvent(t *testing.T) {
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{
		korifiv1alpha1.RevisionAnnotation: "1", torporv1alpha1.CauseAnnotation: "Stop", torporv1alpha1.RevisedByAnnotation: "bob",
		torporv1alpha1.RevisedAtAnnotation: "2026-11-20T13:00:00Z", torporv1alpha1.StartedByAnnotation: "bob", torporv1alpha1.StartedAtAnnotation: "2026-11-20T13:00:01Z",
	}}}
	all := ForAuditEvents(app, []corev1.Event{{Reason: "RevisionBegan", Message: "revision 1 began: Stop by bob"}, {Reason: "ProcessCreated", Message: "created"}})
	var found []string
	for _, e := range all {
		found = append(found, e.Type+": "+e.Data["reason"])
	}
	want := []string{"audit.app.start: revision 1: Restart by bob", "audit.app.stop: revision 1: Restart by bob", "app.processcreated: created"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
