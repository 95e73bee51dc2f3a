// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
)

// PendingStops remembers which machines were told to stop, for clouds that show a machine as running until it is off. It is lost with the
// process; a stop is then sent once more. It is safe for concurrent use.
type PendingStops struct {
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Window is for how long after an order a machine that still runs counts as stopping.
	Window time.Duration

	mu    sync.Mutex
	stops map[string]pendingStop
}

type pendingStop struct{ first, last time.Time }

// Remember notes a stop that was taken. Orders that follow within twice the window of each other are one stop.
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

// Age returns for how long a machine has been told to stop; zero if it was not.
func (p *PendingStops) Age(id string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	stop, isKnown := p.stops[id]
	if !isKnown || p.Clock.Since(stop.last) > 2*p.Window {
		return 0
	}
	return p.Clock.Since(stop.first)
}

// IsPending reports whether a machine that runs is about to stop.
func (p *PendingStops) IsPending(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	stop, isKnown := p.stops[id]
	return isKnown && p.Clock.Since(stop.last) < p.Window
}

// EffectiveState returns the state of a machine: stopping for one with a pending stop that the cloud shows as running. A stop of a machine that
// runs no more is forgotten.
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

// ForgetMachine ends a stop: the machine is off, or somebody has started it.
func (p *PendingStops) ForgetMachine(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.stops, id)
}
