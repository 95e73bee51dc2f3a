// SPDX-License-Identifier: Apache-2.0

package onebyone

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
)

// PendingStops tracks stop orders, for clouds that report a machine as running until it is off. The orders are lost
// when the process exits, and a stop is then sent once more. PendingStops is safe for concurrent use.
type PendingStops struct {
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Window is how long after the last stop order a running machine counts as stopping.
	Window time.Duration

	mu    sync.Mutex
	stops map[string]pendingStop
}

type pendingStop struct{ first, last time.Time }

// Remember records an accepted stop. Orders that follow each other within twice the window count as one stop.
func (p *PendingStops) Remember(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Clock.Now()
	if p.stops == nil {
		p.stops = map[string]pendingStop{}
	}
	maps.DeleteFunc(p.stops, func(_ string, s pendingStop) bool { return now.Sub(s.last) > 2*p.Window })
	stop, isKnown := p.stops[id]
	if !isKnown {
		stop.first = now
	}
	stop.last = now
	p.stops[id] = stop
}

// Age returns the time since the first order of the current stop, or zero if none exists.
func (p *PendingStops) Age(id string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	stop, isKnown := p.stops[id]
	if !isKnown || p.Clock.Since(stop.last) > 2*p.Window {
		return 0
	}
	return p.Clock.Since(stop.first)
}

// IsPending reports whether a running machine has a pending stop.
func (p *PendingStops) IsPending(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	stop, isKnown := p.stops[id]
	return isKnown && p.Clock.Since(stop.last) < p.Window
}

// EffectiveState returns the state of a machine. It is Stopping if the cloud reports the machine as running while a
// stop is pending. If the machine no longer runs, its stop is removed.
func (p *PendingStops) EffectiveState(id string, seen actuator.MachineState) actuator.MachineState {
	switch {
	case seen != actuator.Running:
		p.ForgetMachine(id)
		return seen
	case p.IsPending(id):
		return actuator.Stopping
	default:
		return seen
	}
}

// ForgetMachine removes the stop of a machine that is off or was started.
func (p *PendingStops) ForgetMachine(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.stops, id)
}
