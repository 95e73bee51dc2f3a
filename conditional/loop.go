// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/ratelimit"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
	"github.com/torpor-dev/torpor/conditional/internal/statemachine"
)

// Start observes the condition and runs the group until ctx ends. The manager calls it.
func (g *Group) Start(ctx context.Context) error {
	defer g.release()
	g.metrics.InitGroup(g.options.name)
	g.showState()
	var observer sync.WaitGroup
	observer.Go(func() { g.observeCondition(ctx) })
	observer.Go(func() { g.watchOptional(ctx) })
	defer observer.Wait()
	o := g.options
	return (&groupLoop{group: g, backoff: o.startBackoff, limiter: ratelimit.New(o.restartBurst, o.restartPause)}).run(ctx)
}

// groupLoop owns the state machine of one group; only its goroutine touches it.
type groupLoop struct {
	group          *Group
	activation     *activation // nil while the group is dormant or failed
	identity       string      // of the last activation
	backoff        wait.Backoff
	limiter        *ratelimit.StartLimiter
	timer          *time.Timer       // of the drain timeout, the back-off or the restart limit, which never overlap
	timerFact      statemachine.Fact // what applies when the timer fires
	loggedHold     time.Time         // the end of the pause that was logged last
	isElected      bool
	isStopping     bool
	releaseStandby func() // releases the informers of WarmStandby; nil while none are held
}

func (l *groupLoop) run(ctx context.Context) error {
	stop, elected := ctx.Done(), l.group.mgr.Elected()
	l.timer = time.NewTimer(time.Hour)
	l.timer.Stop()
	defer l.timer.Stop()
	for {
		// This comes before the events of an activation that ends with ctx: otherwise Ended could start the next one.
		if ctx.Err() != nil {
			l.isStopping, stop = true, nil
		}
		l.applyDesire(ctx)
		if l.isStopping && l.activation == nil {
			return nil
		}
		if l.isStopping && l.group.Status().Phase == Stuck {
			return fmt.Errorf("group %s: something has not returned within %s: let runnables and hooks end with their context", l.group.options.name, l.group.options.drainTimeout)
		}
		select {
		case <-stop:
		case <-elected:
			l.becomeLeader()
			elected = nil
		case <-l.group.wakeup:
		case n := <-l.activation.eventChannel():
			l.handleEvent(ctx, n)
		case <-l.timer.C:
			l.applyFact(ctx, l.timerFact, nil)
		}
	}
}

func (l *groupLoop) becomeLeader() {
	l.isElected = true
	l.group.mu.Lock()
	l.group.isLeader = true
	l.group.mu.Unlock()
}

// applyDesire applies the desired fact until the phase no longer changes.
func (l *groupLoop) applyDesire(ctx context.Context) {
	l.syncStandby()
	if l.activation != nil {
		l.group.warnTerminating()
	}
	for l.applyFact(ctx, l.desiredFact(), nil) {
	}
	if l.desiredFact() == statemachine.Unwanted {
		l.group.setHeldUntil(time.Time{})
	}
}

// syncStandby holds the informers of WarmStandby while the condition holds, on the leader too: a controller begins to use
// them some time after its group is Running, so there is no safe moment to release them.
func (l *groupLoop) syncStandby() {
	want := l.lastKnownStatus().State == True && !l.isStopping && len(l.group.options.standby) > 0
	switch {
	case want && l.releaseStandby == nil:
		var err error
		o := scope.Options{Optional: l.group.standbyKinds, Interest: l.group.src.interest}
		if l.releaseStandby, err = scope.HoldInformers(l.group.mgr, l.group.server, o, l.group.options.standby); err != nil {
			l.group.log.Error(err, "the informers of WarmStandby are not held")
		}
	case !want && l.releaseStandby != nil:
		l.releaseStandby()
		l.releaseStandby = nil
	}
}

// lastKnownStatus is the last report that was not Unknown.
func (l *groupLoop) lastKnownStatus() Status {
	l.group.mu.Lock()
	defer l.group.mu.Unlock()
	return l.group.lastKnown
}

func (l *groupLoop) desiredFact() statemachine.Fact {
	asked := l.lastKnownStatus()
	switch {
	case l.isStopping || !l.isElected || asked.State != True:
		return statemachine.Unwanted
	case asked.Identity != l.identity:
		return statemachine.Changed
	}
	return statemachine.Wanted
}

// handleEvent applies an event of the activation, which is over with the last of them.
func (l *groupLoop) handleEvent(ctx context.Context, n activationEvent) {
	over := n.fact == statemachine.Ended || n.fact == statemachine.Erred
	if over || n.fact == runnablesReturned {
		l.group.currentScope.Store(nil)
	}
	if n.fact == runnablesReturned {
		l.applyFact(ctx, statemachine.Broke, nil)
		l.setTimer(statemachine.Overdue, l.group.options.drainTimeout+time.Second) // AfterStop gets the drain timeout for itself; the second lets its context end first.
		return
	}
	l.applyFact(ctx, n.fact, n.err)
	if over {
		l.activation = nil
	}
}

// applyFact makes one transition and reports whether there was one.
func (l *groupLoop) applyFact(ctx context.Context, f statemachine.Fact, err error) bool {
	from := l.group.Status().Phase
	if from == Dormant && f == statemachine.Changed {
		f = statemachine.Wanted // Without an activation there is no identity to differ from.
	}
	to, action := statemachine.NextPhase(from, f)
	if to == from || action == statemachine.Activate && l.isHeldBack() {
		return false
	}
	// A timer belongs to the phase that has set it.
	l.timer.Stop()
	t := l.group.enterPhase(to, f, err)
	if l.activation != nil {
		l.recordDurations(t)
	}
	l.group.recordTransition(t, l.activation != nil && !l.activation.runningAt.IsZero())
	l.group.callOnTransition(t)
	l.performAction(ctx, action, t.At)
	return true
}

// isHeldBack reports whether the restart limit forbids a start now, and sets the timer to when it no longer does.
func (l *groupLoop) isHeldBack() bool {
	until := l.limiter.NextStart()
	pause := time.Until(until)
	if pause <= 0 {
		return false
	}
	l.setTimer(statemachine.Retry, pause)
	l.group.setHeldUntil(until)
	// The loop comes here at every wake-up, and one line for each pause is enough.
	if until != l.loggedHold {
		l.loggedHold = until
		l.group.log.Info("the restart limit holds the next start back", "until", until)
	}
	return true
}

func (l *groupLoop) performAction(ctx context.Context, do statemachine.Action, now time.Time) {
	switch do {
	case statemachine.Activate:
		l.identity = l.lastKnownStatus().Identity
		l.limiter.NoteStart(now)
		l.activation = startActivation(ctx, l.group, now)
	case statemachine.Cancel:
		l.activation.cancel()
		l.setTimer(statemachine.Overdue, l.group.options.drainTimeout)
	case statemachine.Seal:
		l.activation.closeScope()
	case statemachine.BackOff:
		// A start that has lasted longer than the longest pause is not the same failure once more.
		if now.Sub(l.activation.startingAt) > l.group.options.startBackoff.Cap {
			l.backoff = l.group.options.startBackoff
		}
		l.setTimer(statemachine.Retry, l.backoff.Step())
	case statemachine.Forgive:
		l.backoff = l.group.options.startBackoff
	case statemachine.Stay:
	}
}

// recordDurations measures the phases of the activation that a transition ends.
func (l *groupLoop) recordDurations(t Transition) {
	switch t.To {
	case Running:
		l.activation.runningAt = t.At
		l.group.metrics.ObserveStart(t.Group, t.At.Sub(l.activation.startingAt))
	case Draining:
		l.activation.drainingAt = t.At
	case Dormant, Failed:
		if !l.activation.drainingAt.IsZero() {
			l.group.metrics.ObserveStop(t.Group, t.At.Sub(l.activation.drainingAt))
		}
	case Starting, Stuck:
	}
	if t.From == Running {
		l.limiter.NoteRun(t.At.Sub(l.activation.runningAt))
	}
}

func (l *groupLoop) setTimer(due statemachine.Fact, after time.Duration) {
	l.timerFact = due
	l.timer.Reset(after)
}

// observeCondition runs the condition, again with a back-off after it failed.
func (g *Group) observeCondition(ctx context.Context) {
	newChild(g.condition, g.src).ObserveWithBackoff(ctx, g.options.startBackoff, g.reportCondition)
}

// watchOptional keeps the manager's cache informed of the optional kinds; a scope follows them only while it lives.
func (g *Group) watchOptional(ctx context.Context) {
	if len(g.optionalKinds) == 0 || g.src.managerCache == nil {
		return
	}
	src := g.src
	src.onTerminating = nil
	if err := observeKinds(ctx, src, g.optionalKinds, func([]detect.Verdict) {}); err != nil {
		g.log.Error(err, "optional kinds are not watched outside of the group")
	}
}
