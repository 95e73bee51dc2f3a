// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// appStory is an app that users change through admission. Its status is updated after each pass.
type appStory struct {
	app *korifiv1alpha1.CFApp
	now time.Time
}

func newAppStory(t *testing.T) *appStory {
	t.Helper()
	s := &appStory{app: &korifiv1alpha1.CFApp{}, now: time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)}
	s.app.Spec.DesiredState = korifiv1alpha1.StartedState
	s.admit(t, "maker", nil)
	return s
}

// admit changes the app as the given user.
func (s *appStory) admit(t *testing.T, who string, change func(*korifiv1alpha1.CFApp)) {
	t.Helper()
	var old *korifiv1alpha1.CFApp
	updated := s.app.DeepCopy()
	if change != nil {
		old = s.app
		change(updated)
	}
	marks, err := revision.NextRevision(old, updated)
	if err != nil {
		t.Fatal(err)
	}
	revision.SetRevisionAnnotations(old, updated, marks, who, s.now)
	s.app = updated
}

func (s *appStory) set(t *testing.T, who string, state korifiv1alpha1.AppState, until string) {
	t.Helper()
	s.admit(t, who, func(app *korifiv1alpha1.CFApp) {
		app.Spec.DesiredState = state
		if until != "" {
			app.Annotations[torporv1alpha1.UntilAnnotation] = until
		}
	})
}

func (s *appStory) look() Plan {
	o := Observed{App: s.app, Stops: NextStops(s.app, s.now)}
	plan := Decide(o)
	s.app.Status.Restarts, s.app.Status.Stops = revision.ListRestarts(s.app), o.Stops
	return plan
}

func TestStopsOfAnAppAreRecorded(t *testing.T) {
	s := newAppStory(t)
	s.look()
	if len(s.app.Status.Stops) > 0 {
		t.Errorf("expected no stop, found %+v", s.app.Status.Stops)
	}
	s.set(t, "alice", korifiv1alpha1.StoppedState, "")
	s.look()
	s.now = s.now.Add(time.Hour)
	s.set(t, "bob", korifiv1alpha1.StartedState, "")
	s.admit(t, "carol", func(app *korifiv1alpha1.CFApp) { app.Annotations[torporv1alpha1.RestartRequestAnnotation] = "1" })
	s.look()
	if stops := s.app.Status.Stops; len(stops) != 1 || stops[0].By != "alice" || stops[0].StartedBy != "bob" || stops[0].EndedAt.Sub(stops[0].Since.Time) != time.Hour || stops[0].Requested {
		t.Errorf("expected one stop by alice that bob ended, found %+v", stops)
	}
	s.set(t, "dave", korifiv1alpha1.StoppedState, "")
	s.look()
	s.set(t, "erin", korifiv1alpha1.StartedState, "")
	s.set(t, "erin", korifiv1alpha1.StoppedState, "")
	s.look()
	if stops := s.app.Status.Stops; len(stops) != 3 || stops[0].By != "erin" || stops[1].By != "dave" || !stops[0].Requested {
		t.Errorf("expected a stop of its own for each revision, found %+v", stops)
	}
}

func TestAnAppIsStartedOnceWhenItsStopIsOver(t *testing.T) {
	s := newAppStory(t)
	s.set(t, "alice", korifiv1alpha1.StoppedState, "2026-11-23T17:00:00Z")
	if s.look().EndsStop {
		t.Error("expected it to stay stopped")
	}
	s.now = s.now.Add(9 * time.Hour)
	if s.look().EndsStop {
		t.Error("expected that the end is recorded before anything is done")
	}
	if !s.look().EndsStop || s.app.Status.Stops[0].StartedBy != torporv1alpha1.UntilAnnotation {
		t.Errorf("expected it to be started by its end, found %+v", s.app.Status.Stops)
	}
	s.set(t, "the manager", korifiv1alpha1.StartedState, "")
	if _, isLeft := s.app.Annotations[torporv1alpha1.UntilAnnotation]; isLeft {
		t.Error("expected the end to go with the stop")
	}
	for range 2 {
		if s.look().EndsStop {
			t.Error("expected no second start")
		}
	}
	if stop := s.app.Status.Stops[0]; stop.StartedBy != torporv1alpha1.UntilAnnotation || stop.Requested {
		t.Errorf("expected the record to say why it was started, found %+v", stop)
	}
	s.set(t, "bob", korifiv1alpha1.StoppedState, "")
	if s.look(); s.look().EndsStop {
		t.Error("expected a stop after that to hold")
	}
}

func TestExtendedStopDoesNotEnd(t *testing.T) {
	s := newAppStory(t)
	s.set(t, "alice", korifiv1alpha1.StoppedState, "2026-11-23T10:00:00Z")
	s.now = s.now.Add(2 * time.Hour)
	s.look()
	s.set(t, "alice", korifiv1alpha1.StoppedState, "2026-11-23T17:00:00Z")
	if s.look().EndsStop || len(s.app.Status.Stops) != 2 {
		t.Errorf("expected another stop that holds, found %+v", s.app.Status.Stops)
	}
}

func TestStopNote(t *testing.T) {
	for until, want := range map[string]string{
		"": "; asked for by alice", "tomorrow": `found "tomorrow"`, "2026-11-23T17:00:00Z": "; asked for by alice; until 2026-11-23T17:00:00Z",
		"2026-11-23T08:00:00Z": "which an earlier stop left behind",
	} {
		s := newAppStory(t)
		s.set(t, "alice", korifiv1alpha1.StoppedState, until)
		if s.look(); !strings.Contains(stopNote(s.app.Status.Stops), want) {
			t.Errorf("%s: expected %q, found %q", until, want, stopNote(s.app.Status.Stops))
		}
	}
	s := newAppStory(t)
	s.app.Spec.DesiredState = korifiv1alpha1.StoppedState
	s.admit(t, "maker", nil)
	if s.look(); len(s.app.Status.Stops) > 0 {
		t.Errorf("expected a new app to be no stopped one, found %+v", s.app.Status.Stops)
	}
}
