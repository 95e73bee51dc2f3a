// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
)

// What is under way is written once it goes on for a moment, and everything else at once.
func TestUnderway(t *testing.T) {
	const short = 10 * time.Millisecond
	type pass struct {
		// after is the time since the pass before.
		after    time.Duration
		underway bool
		// tells says that the pass has an event.
		tells bool
		// wants is when to look again.
		wants time.Duration
	}
	type written struct{ Patches, Events, Saves int }
	for name, row := range map[string]struct {
		passes []pass
		want   written
	}{
		"what ends at once is written at once":             {[]pass{{}}, written{Patches: 1, Saves: 1}},
		"what is over in a moment is written when it ends": {[]pass{{underway: true}, {after: short, underway: true}, {after: short}}, written{Patches: 1, Saves: 1}},
		"what goes on is written after a moment":           {[]pass{{underway: true}, {after: moment, underway: true}}, written{Patches: 1, Saves: 1}},
		"and then once in each moment": {[]pass{
			{underway: true}, {after: moment, underway: true}, {after: short, underway: true}, {after: short, underway: true}, {after: moment, underway: true},
		}, written{Patches: 2, Saves: 2}},
		"an event is told at once":              {[]pass{{underway: true, tells: true}}, written{Patches: 1, Events: 1, Saves: 1}},
		"who waits for less looks again sooner": {[]pass{{underway: true, wants: short}}, written{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, events, saves, now := server{}, told(nil), 0, pass{}
				r := &Reconciler[*corev1.Pod]{
					Client: &s, Recorder: &events, New: func() *corev1.Pod { return &corev1.Pod{} },
					Step: func(_ context.Context, p *corev1.Pod) (Outcome, error) {
						p.Status.Message = fmt.Sprint("at ", time.Now())
						out := Outcome{After: now.wants, Underway: now.underway, Saved: func() { saves++ }}
						if now.tells {
							out.Events = []Event{{Reason: "Moved"}}
						}
						return out, nil
					},
				}
				for _, now = range row.passes {
					<-time.After(now.after)
					s.cached = s.stored
					patches := len(s.patches)
					result, err := r.Reconcile(t.Context(), ctrl.Request{})
					if err != nil {
						t.Fatal(err)
					}
					if held := len(s.patches) == patches; held && (result.RequeueAfter == 0 || result.RequeueAfter > sooner(moment, now.wants)) {
						t.Errorf("found %s until the next look at what is held back, want at most %s", result.RequeueAfter, sooner(moment, now.wants))
					}
				}
				if diff := cmp.Diff(row.want, written{Patches: len(s.patches), Events: len(events), Saves: saves}); diff != "" {
					t.Errorf("writes (-want +got):\n%s", diff)
				}
			})
		})
	}
}
