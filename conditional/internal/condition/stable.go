// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// HoldTimes is how long a state must hold before it is passed on.
type HoldTimes struct{ True, False time.Duration }

// ObserveStable observes the child and reports its states once they have held, until ctx ends and the child has returned.
func ObserveStable(ctx context.Context, child Child, hold HoldTimes, report func(Status)) {
	var running sync.WaitGroup
	defer running.Wait()
	reports := make(chan Status)
	running.Go(func() {
		child.ObserveWithBackoff(ctx, DefaultBackoff(), func(s Status) {
			select {
			case reports <- s:
			case <-ctx.Done():
			}
		})
	})
	// It is stopped at once; only a state that is settling sets it.
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	d := hysteresis{name: child.Name, hold: hold}
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-reports:
			d.noteReport(s, time.Now())
		case <-timer.C:
		}
		report(d.currentStatus(time.Now()))
		timer.Stop()
		if d.isSettling() {
			timer.Reset(time.Until(d.settlesAt()))
		}
	}
}

// hysteresis is the state of one ObserveStable.
type hysteresis struct {
	name      string
	hold      HoldTimes
	reported  Status // Unknown before a state has held for the first time
	candidate Status // what has to hold since then; nothing does when it is Unknown
	since     time.Time
	inDoubt   bool   // the child is Unknown now
	doubt     Status // its last report then
}

// noteReport takes a report of the child. Unknown does not interrupt a state that is settling.
func (d *hysteresis) noteReport(s Status, at time.Time) {
	d.inDoubt = s.State == Unknown
	switch {
	case d.inDoubt:
		d.doubt = s
		return
	case s.State == d.reported.State:
		d.reported, d.candidate = s, Status{}
		return
	case s.State != d.candidate.State:
		d.since = at
	}
	d.candidate = s
}

// isSettling reports whether time alone will change the status. No state is passed on while the child is Unknown.
func (d *hysteresis) isSettling() bool { return !d.inDoubt && d.candidate.State != Unknown }

func (d *hysteresis) settlesAt() time.Time { return d.since.Add(d.holdTime()) }

func (d *hysteresis) holdTime() time.Duration {
	if d.candidate.State == True {
		return d.hold.True
	}
	return d.hold.False
}

// currentStatus returns what is passed on at a time.
func (d *hysteresis) currentStatus(at time.Time) Status {
	switch {
	case d.inDoubt:
		return d.doubt
	case !d.isSettling():
		return d.reported
	case !at.Before(d.settlesAt()):
		d.reported, d.candidate = d.candidate, Status{}
		return d.reported
	}
	s := d.reported
	s.Reason, s.Message = "Settling", fmt.Sprintf("%s is %s and must stay so for %s", d.name, d.candidate.State, d.holdTime())
	return s
}
