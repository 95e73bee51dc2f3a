// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// begin starts the loop of the group. Only the first call has an effect.
func (g *Group) begin(ctx context.Context) {
	g.mu.Lock()
	if g.loop.group != nil {
		g.mu.Unlock()
		return
	}
	g.loop = groupLoop{ctx: ctx, group: g}
	g.isAwake = true
	g.mu.Unlock()
	g.loop.observe()
	go g.act()
}

// wake starts a goroutine that handles the group's events. If such a goroutine is already running, it checks for events
// once more. wake does not block, and may be called with any lock held except the group's.
func (g *Group) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.loop.group == nil || g.isEnded:
	case g.isAwake:
		g.hasNews = true
	default:
		g.isAwake = true
		go g.act()
	}
}

func (g *Group) act() {
	for {
		g.loop.step()
		if g.loop.isOver() {
			g.end()
			return
		}
		g.mu.Lock()
		if !g.hasNews {
			g.isAwake = false
			g.mu.Unlock()
			return
		}
		g.hasNews = false
		g.mu.Unlock()
	}
}

// end unregisters the group from the process and from its manager.
func (g *Group) end() {
	var err error
	if g.loop.activation != nil {
		err = fmt.Errorf("group %s: a runnable has not returned within %s: "+
			"change runnables to return when their context is cancelled", g.options.name, g.options.drainTimeout)
	}
	g.loop.stopObserving()
	g.loop.holds.end()
	g.release()
	g.mu.Lock()
	g.isEnded = true
	names := slices.Collect(maps.Keys(g.controllers))
	if !g.orders.isRemoved {
		names = nil // The manager is stopping, so its metrics are no longer needed.
	}
	g.notifyWaitersLocked()
	g.mu.Unlock()
	for _, name := range names {
		g.server.Registry.DeleteSeries(name)
	}
	g.host.leave(g, err)
}

// groupLoop owns the state machine of one group. Only the goroutine that handles events uses it.
type groupLoop struct {
	ctx          context.Context
	group        *Group
	activation   *activation   // activation is nil while the group is dormant or failed
	identity     string        // identity is the identity of the last activation
	backoff      *wait.Backoff // backoff is the pause between failed starts; nil before the first failure and after a reset
	limiter      *startLimiter // limiter is nil before the first start
	timer        *phaseTimer   // timer is nil before the first timer
	restarts     int32         // restarts counts the restarts that were requested before the last activation
	isStopping   bool
	kinds        []*kindObserver // kinds are the observers of the optional kinds, and of a kindsCondition
	stopObserver func()          // stopObserver ends the goroutine that observes any other condition; nil without one

	holds *holdRecorder // holds is nil until a CRD or an event about a hold has to be stored
}

func (l *groupLoop) step() {
	for more := true; more; {
		// Set isStopping before handling the events of an activation that ends because ctx was cancelled. Otherwise the
		// event Ended could start the next activation.
		l.isStopping = l.ctx.Err() != nil || l.group.currentOrders().isRemoved
		for _, o := range l.kinds {
			o.takeVerdicts(l.ctx)
		}
		l.applyDesire(l.ctx)
		select {
		case n := <-l.activation.eventChannel():
			l.handleEvent(l.ctx, n)
			continue
		default:
		}
		if more = l.timer != nil && !l.timer.due.IsZero() && !time.Now().Before(l.timer.due); more {
			l.stopTimer()
			l.applyFact(l.ctx, l.timer.fact, nil)
		}
	}
	l.recordHolds()
}

// isOver reports whether the group has ended. If its manager stops, the group ends even if a runnable never returns.
func (l *groupLoop) isOver() bool {
	return l.isStopping && (l.activation == nil || l.ctx.Err() != nil && l.group.Status().Phase == Stuck)
}

// applyDesire applies the fact that expresses the desired state, until the phase no longer changes.
func (l *groupLoop) applyDesire(ctx context.Context) {
	if l.activation != nil {
		l.group.warnTerminating()
	}
	if l.limiter != nil {
		l.limiter.noteDesire(l.desiredFact() != factUnwanted, time.Now())
	}
	for l.applyFact(ctx, l.desiredFact(), nil) {
	}
	if l.desiredFact() == factUnwanted {
		l.group.setHeldUntil(time.Time{})
	}
}

func (l *groupLoop) desiredFact() groupFact {
	o := l.group.currentOrders()
	switch {
	case l.isStopping || !l.group.host.isLeader() || o.isPaused || o.lastKnown.State != True:
		return factUnwanted
	case o.lastKnown.Identity != l.identity || o.restarts != l.restarts:
		return factChanged
	}
	return factWanted
}

// handleEvent applies an event of the activation. The last event ends the activation.
func (l *groupLoop) handleEvent(ctx context.Context, n activationEvent) {
	over := n.fact == factEnded || n.fact == factErred
	if over {
		l.group.currentScope.Store(nil)
	}
	l.applyFact(ctx, n.fact, n.err)
	if over {
		l.activation = nil
	}
}

// applyFact performs at most one transition, and reports whether it did.
func (l *groupLoop) applyFact(ctx context.Context, f groupFact, err error) bool {
	from := l.group.Status().Phase
	if from == Dormant && f == factChanged {
		f = factWanted // A dormant group has no activation to restart.
	}
	to, action := nextPhase(from, f)
	if to == from || action == actionActivate && l.isHeldBack() {
		return false
	}
	t, hasChanged := l.group.enterPhase(to, f, err)
	if !hasChanged {
		return false
	}
	l.stopTimer() // A timer applies only to the phase in which it was set.
	if l.activation != nil {
		l.recordDurations(t)
	}
	l.group.recordPhaseChange(t, l.activation != nil && !l.activation.runningAt.IsZero())
	l.performAction(ctx, f, action, t.at)
	return true
}

// isHeldBack reports whether the restart limit forbids a start now. If so, it sets a timer for the end of the pause.
func (l *groupLoop) isHeldBack() bool {
	if l.limiter == nil {
		return false
	}
	until := l.limiter.next
	pause := time.Until(until)
	if pause <= 0 {
		return false
	}
	l.setTimer(factRetry, pause)
	l.group.setHeldUntil(until)
	// The loop runs this code for every event, but one log line per pause is enough.
	if until != l.limiter.logged {
		l.limiter.logged = until
		l.group.logger().Info("the restart limit delays the next start", "until", until)
	}
	return true
}

func (l *groupLoop) performAction(ctx context.Context, f groupFact, do groupAction, now time.Time) {
	switch do {
	case actionActivate:
		o := l.group.currentOrders()
		l.identity, l.restarts = o.lastKnown.Identity, o.restarts
		if l.limiter == nil {
			l.limiter = newStartLimiter(l.group.options.restartBurst, l.group.options.readRestartPause())
		}
		l.limiter.noteStart(now)
		l.noteCRD() // Events about a drain need the CRD even after its deletion.
		l.activation = startActivation(ctx, l.group, now)
	case actionCancel:
		l.endActivation(f)
	case actionSeal:
		l.activation.closeScope()
	case actionBackOff:
		// If the activation lasted longer than the longest pause, the back-off begins again.
		if now.Sub(l.activation.startingAt) > l.group.options.readStartBackoff().Cap {
			l.backoff = nil
		}
		if l.backoff == nil {
			l.backoff = new(l.group.options.readStartBackoff())
		}
		l.setTimer(factRetry, l.backoff.Step())
	case actionForgive:
		l.backoff = nil
	case actionStay:
	}
}

// endActivation asks the activation to end. If the CRD was deleted, the controllers first reconcile the last deletions
// in their queues. The drain timeout applies to these reconciles, and then again to the return of the runnables.
func (l *groupLoop) endActivation(f groupFact) {
	limit := l.group.options.drainTimeout
	live := l.group.currentScope.Load()
	if f != factBroke && !l.isStopping && !l.activation.runningAt.IsZero() && live != nil && live.HasLostKinds() {
		live.Drain()
		limit *= 2
	} else {
		l.activation.cancel()
	}
	l.setTimer(factOverdue, limit)
	time.AfterFunc(longDrain, l.group.wake)
}

// recordDurations records the durations of the phases that a transition ends.
func (l *groupLoop) recordDurations(t phaseChange) {
	switch t.to {
	case Running:
		l.activation.runningAt = t.at
		l.group.server.Registry.StartDurations.WithLabelValues(l.group.options.name).Observe(t.at.Sub(l.activation.startingAt).Seconds())
	case Draining:
		l.activation.drainingAt = t.at
	case Dormant, Failed:
		if !l.activation.drainingAt.IsZero() {
			l.group.server.Registry.StopDurations.WithLabelValues(l.group.options.name).Observe(t.at.Sub(l.activation.drainingAt).Seconds())
		}
	case Starting, Stuck:
	}
	if t.from == Running {
		l.limiter.noteQuiet(t.at.Sub(l.activation.runningAt))
	}
}

// phaseTimer wakes a group at the end of the drain timeout, of the back-off or of a pause of the restart limit. At most
// one of these is pending at a time.
type phaseTimer struct {
	*time.Timer
	fact groupFact // fact is the fact to apply
	due  time.Time // due is zero while the timer is stopped
}

func (l *groupLoop) setTimer(fact groupFact, after time.Duration) {
	if l.timer == nil {
		l.timer = &phaseTimer{Timer: time.AfterFunc(after, l.group.wake)}
	}
	l.timer.fact, l.timer.due = fact, time.Now().Add(after)
	l.timer.Reset(after)
}

func (l *groupLoop) stopTimer() {
	if l.timer != nil {
		l.timer.due = time.Time{}
		l.timer.Stop()
	}
}

// observe starts observing the condition. A condition that depends only on kinds wakes the group when a verdict
// changes. Any other condition is observed by a goroutine.
func (l *groupLoop) observe() {
	g := l.group
	src := g.sources()
	if len(g.optional.Kinds) > 0 && src.managerCache != nil {
		// A scope follows these kinds only during its lifetime, but the manager's cache must follow them all the time.
		quiet := src
		quiet.onTerminating = nil
		l.kinds = append(l.kinds, newKindObserver(quiet, g.server, g.optional.Kinds, func([]detect.Verdict) {}, g.wake))
	}
	if c, ok := g.condition.(kindsCondition); ok {
		if kinds, err := c.resolveKinds(src.Scheme); err == nil {
			judge := c.judge
			g.condition = nil // The condition is not used after this point.
			l.kinds = append(l.kinds, newKindObserver(src, g.server, kinds, func(verdicts []detect.Verdict) { g.reportCondition(judge(kinds, verdicts)) }, g.wake))
			return
		}
	}
	ctx, cancel := context.WithCancel(l.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		src.Logger = g.logger()
		observeWithBackoff(ctx, g.condition, src, g.options.readStartBackoff(), g.reportCondition)
	})
	l.stopObserver = func() { cancel(); running.Wait() }
}

// stopObserving ends all observations, and returns when they have ended.
func (l *groupLoop) stopObserving() {
	for _, o := range l.kinds {
		o.cancel()
	}
	if l.stopObserver != nil {
		l.stopObserver()
	}
}

// slowStart is the longest time for which a start occupies a start slot. A start that hangs, because setup blocks or a
// kind cannot sync, must not prevent other groups from starting. A start that releases its slot before it is done
// allows one more concurrent start.
const slowStart = 5 * time.Second

// activation is one run of a group: a scope, and the runnables that setup added to it.
type activation struct {
	group      *Group
	cancel     context.CancelFunc   // cancel asks the runnables to return
	closeScope func()               // closeScope closes the scope, even while runnables have not returned
	events     chan activationEvent // events is buffered for all events of an activation, so that sending never blocks

	// The times are used by the goroutine of groupLoop only.
	startingAt, runningAt, drainingAt time.Time // when the phase Starting, Running or Draining began, or zero
}

type activationEvent struct {
	fact groupFact
	err  error
}

// eventChannel returns nil if there is no activation. A select never receives from a nil channel.
func (l *activation) eventChannel() <-chan activationEvent {
	if l == nil {
		return nil
	}
	return l.events
}

func (l *activation) send(fact groupFact, err error) {
	l.events <- activationEvent{fact, err}
	l.group.wake()
}

// startActivation opens a scope, and runs the setup function in a goroutine. The last event of the activation is Ended
// or Erred.
func startActivation(ctx context.Context, g *Group, at time.Time) *activation {
	ctx, cancel := context.WithCancel(ctx)
	l := &activation{group: g, cancel: cancel, closeScope: func() {}, events: make(chan activationEvent, 4), startingAt: at}
	s, err := scope.New(g.mgr, g.server, scope.Options{
		Optional: g.optional, CacheOptions: g.options.cacheOptions, UseQueue: g.useQueue,
	})
	if err != nil {
		cancel()
		l.send(factErred, fmt.Errorf("open a scope: %w", err))
		return l
	}
	l.closeScope = s.Close
	g.currentScope.Store(s)
	go l.runScope(ctx, g, s)
	return l
}

// runScope waits for a start slot of the API server, calls the setup function and starts the runnables. Then it
// returns, because the activation needs no further goroutine.
func (l *activation) runScope(ctx context.Context, g *Group, s *scope.Manager) {
	ended := func(err error) {
		s.End()
		l.cancel()
		g.noteControllers(s.ControllerNames())
		if err != nil {
			l.send(factErred, err)
		} else {
			l.send(factEnded, nil)
		}
	}
	done, ok := g.acquireStartSlot(ctx)
	if !ok {
		ended(nil)
		return
	}
	defer done()
	if err := g.callSetup(s); err != nil {
		ended(err)
		return
	}
	s.Run(ctx, scope.Progress{
		Up: func() { l.send(factUp, nil) }, Broke: func() { l.send(factBroke, nil) }, Ended: ended,
		DrainTimeout: g.options.drainTimeout, Dropped: g.warnDropped,
	})
}

// callSetup calls the setup function, and returns a panic as an error.
func (g *Group) callSetup(s *scope.Manager) (err error) {
	defer func() {
		if p := recover(); p != nil {
			g.logger().Info("the setup function panicked", "stack", string(debug.Stack()))
			err = fmt.Errorf("setup panicked: %v", p)
		}
	}()
	if err := g.setup(s); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	return nil
}

// acquireStartSlot waits until fewer starts than the limit are in progress. done releases the slot. ok is false if ctx
// was cancelled first.
func (g *Group) acquireStartSlot(ctx context.Context) (done func(), ok bool) {
	select {
	case g.server.StartSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	// The timer or the end of the start frees the slot, whichever comes first.
	free := sync.OnceFunc(func() { <-g.server.StartSlots })
	slow := time.AfterFunc(slowStart, free)
	return func() { slow.Stop(); free() }, true
}

// forgiveAfter is the shortest time for which a group must run, or stay unwanted, before its earlier starts are no
// longer counted.
const forgiveAfter = time.Minute

// startLimiter allows a burst of immediate starts. The last start of the burst, and each later start, is followed by a
// pause with the length of the next back-off step. The limiter is reset when the group ran, or was not wanted, for long
// enough. golang.org/x/time/rate does not support growing pauses.
type startLimiter struct {
	burst         int
	first         wait.Backoff
	pause         wait.Backoff // pause has the remaining steps of first
	starts        int
	next          time.Time // next is the earliest time for the next start
	logged        time.Time // logged is the end of the pause that was logged last
	unwantedSince time.Time // unwantedSince is zero while the group is wanted
}

func newStartLimiter(burst int, pause wait.Backoff) *startLimiter {
	return &startLimiter{burst: burst, first: pause, pause: pause}
}

func (p *startLimiter) noteStart(now time.Time) {
	if p.starts++; p.starts >= p.burst {
		p.next = now.Add(p.pause.Step())
	}
}

// noteQuiet resets the limiter if span, the time for which the group ran or was not wanted, is at least forgiveAfter
// and at least the next pause.
func (p *startLimiter) noteQuiet(span time.Duration) {
	if span >= max(forgiveAfter, p.pause.Duration) {
		*p = *newStartLimiter(p.burst, p.first)
	}
}

// noteDesire measures for how long the group has not been wanted.
func (p *startLimiter) noteDesire(isWanted bool, now time.Time) {
	switch {
	case !isWanted && p.unwantedSince.IsZero():
		p.unwantedSince = now
	case isWanted && !p.unwantedSince.IsZero():
		span := now.Sub(p.unwantedSince)
		p.unwantedSince = time.Time{}
		p.noteQuiet(span)
	}
}
