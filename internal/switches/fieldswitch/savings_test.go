// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"testing"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

// TestSavingsEndWithTheStop ends a stop of two hours in different ways. The patch that ends the stop must also write
// the savings.
func TestSavingsEndWithTheStop(t *testing.T) {
	t.Parallel()
	end := evening().Add(2 * time.Hour)
	for name, row := range map[string]struct {
		ends      func(w *world)
		writtenAt time.Time
		want      int64
	}{
		"a stop that goes on: no savings":                                           {func(*world) {}, time.Time{}, 0},
		"a user starts the object: savings of two hours":                            {func(w *world) { w.annotate(torporv1alpha1.StoppedAnnotation, "false") }, time.Time{}, 2 * 3600 * 500},
		"another writer scaled the object an hour ago: savings of one hour":         {func(w *world) { w.scale(2) }, end.Add(-time.Hour), 3600 * 500},
		"another writer scaled the object at an unknown time: savings of two hours": {func(w *world) { w.scale(2) }, time.Time{}, 2 * 3600 * 500},
		"a user removes the saved fields: savings of two hours": {func(w *world) {
			w.annotate(torporv1alpha1.RestoreAnnotation, "")
			w.annotate(torporv1alpha1.StoppedAnnotation, "")
		}, time.Time{}, 2 * 3600 * 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			decide := func(at time.Time) *torporv1alpha1.Savings {
				stored := savings.ReadAnnotation(w.object.GetAnnotations())
				w.object = Decide(ObservedSwitch{
					Now: at, Object: w.object, Operations: scaleToZero(), WrittenAt: row.writtenAt, Rate: savings.Rate{CPUMillis: 500},
					Moment: savings.Moment{At: at, Counted: savings.Elapsed(stored, at)},
				}).Next
				return savings.ReadAnnotation(w.object.GetAnnotations())
			}
			w.annotate(torporv1alpha1.StoppedAnnotation, "true")
			if s := decide(evening()); s == nil || s.CPUMillis != 500 || !s.Since.Time.Equal(evening()) || s.CPUMilliSeconds != 0 {
				t.Fatalf("expected the savings to begin with the stop, found %+v", s)
			}
			row.ends(w)
			s := decide(end)
			if isOver := row.want > 0; s.CPUMilliSeconds != row.want || (s.Since == nil) != isOver {
				t.Errorf("expected %d, found %+v", row.want, s)
			}
			if again := decide(end.Add(time.Hour)); again.CPUMilliSeconds != s.CPUMilliSeconds {
				t.Errorf("expected no change by another pass, found %+v after %+v", again, s)
			}
		})
	}
}
