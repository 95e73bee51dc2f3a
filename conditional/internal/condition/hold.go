// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Hold is how long a state must hold before it is passed on.
type Hold struct{ True, False time.Duration }

// Stable observes the child and reports its states once they have held, until ctx ends and the child has returned.
func Stable(ctx context.Context, child Child, hold Hold, report func(Status)) {
	var running sync.WaitGroup
	defer running.Wait()
	reports := make(chan Status)
	running.Go(func() {
		child.Keep(ctx, Backoff(), func(s Status) {
			select {
			case reports <- s:
			case <-ctx.Done():
			}
		})
	})
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	d := damper{name: child.Name, hold: hold}
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-reports:
			d.take(s, time.Now())
		case <-timer.C:
		}
		report(d.now(time.Now()))
		timer.Stop()
		if d.settles() {
			timer.Reset(time.Until(d.due()))
		}
	}
}

// damper is the memory of one hysteresis.
type damper struct {
	name    string
	hold    Hold
	passed  Status // Unknown before a state has held for the first time
	next    Status // what has to hold since then; nothing does when it is Unknown
	since   time.Time
	doubted bool   // the child is Unknown now
	doubt   Status // and says this
}

// take notes a report. Unknown says nothing about a state that is settling, so that goes on to settle.
func (d *damper) take(s Status, at time.Time) {
	d.doubted = s.State == Unknown
	switch {
	case d.doubted:
		d.doubt = s
		return
	case s.State == d.passed.State:
		d.passed, d.next = s, Status{}
		return
	case s.State != d.next.State:
		d.since = at
	}
	d.next = s
}

// settles tells whether time alone will change what is passed on. A state is never passed on in doubt.
func (d *damper) settles() bool { return !d.doubted && d.next.State != Unknown }

func (d *damper) due() time.Time { return d.since.Add(d.span()) }

func (d *damper) span() time.Duration {
	if d.next.State == True {
		return d.hold.True
	}
	return d.hold.False
}

// now returns what is passed on at a time.
func (d *damper) now(at time.Time) Status {
	switch {
	case d.doubted:
		return d.doubt
	case !d.settles():
		return d.passed
	case !at.Before(d.due()):
		d.passed, d.next = d.next, Status{}
		return d.passed
	}
	s := d.passed
	s.Reason, s.Message = "Settling", fmt.Sprintf("%s is %s and must stay so for %s", d.name, d.next.State, d.span())
	return s
}
