// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/machine"
	"github.com/torpor-dev/torpor/conditional/internal/ratelimit"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// Start observes the condition and runs the group until ctx ends. The manager calls it.
func (g *Group) Start(ctx context.Context) error {
	defer g.release()
	var observer sync.WaitGroup
	observer.Go(func() { g.observe(ctx) })
	observer.Go(func() { g.watchOptional(ctx) })
	defer observer.Wait()
	g.gauges.Open(g.options.name)
	o := g.options
	return (&loop{g: g, backoff: o.startBackoff, pace: ratelimit.New(o.restartBurst, o.restartPause)}).run(ctx)
}

// loop owns the state machine of one group; only its goroutine touches it.
type loop struct {
	g        *Group
	life     *life  // the one that lives, nil when nothing does
	identity string // of the last life
	backoff  wait.Backoff
	pace     *ratelimit.Pace
	timer    *time.Timer  // of the drain timeout, the back-off or the restart limit, which never overlap
	due      machine.Fact // what the timer means
	told     time.Time    // the end of the pause that the log has told of
	elected  bool
	stopping bool
	cool     func() // gives up what WarmStandby holds; nil while that is nothing
}

func (l *loop) run(ctx context.Context) error {
	stop, elected := ctx.Done(), l.g.mgr.Elected()
	l.timer = time.NewTimer(time.Hour)
	l.timer.Stop()
	defer l.timer.Stop()
	for {
		if ctx.Err() != nil { // Before the news of a life that has ended with it: that must not be followed by another.
			l.stopping, stop = true, nil
		}
		l.settle(ctx)
		if l.stopping && l.life == nil {
			return nil
		}
		if l.stopping && l.g.Status().Phase == Stuck {
			return fmt.Errorf("group %s: something has not returned within %s: let runnables and hooks end with their context", l.g.options.name, l.g.options.drainTimeout)
		}
		select {
		case <-stop:
		case <-elected:
			l.lead()
			elected = nil
		case <-l.g.mail:
		case n := <-l.life.news():
			l.hear(ctx, n)
		case <-l.timer.C:
			l.apply(ctx, l.due, nil)
		}
	}
}

func (l *loop) lead() {
	l.elected = true
	l.g.mu.Lock()
	l.g.leads = true
	l.g.mu.Unlock()
}

// settle tells the machine the desire until nothing moves any more.
func (l *loop) settle(ctx context.Context) {
	l.warm()
	if l.life != nil {
		l.g.warn()
	}
	for l.apply(ctx, l.desire(), nil) {
	}
	if l.desire() == machine.Unwanted {
		l.g.hold(time.Time{})
	}
}

// warm holds the informers of WarmStandby while the condition does, whoever leads: a controller begins to use them some
// time after its group is Running, so there is no good moment to let them go before.
func (l *loop) warm() {
	want := l.asked().State == True && !l.stopping && len(l.g.options.standby) > 0
	switch {
	case want && l.cool == nil:
		var err error
		o := scope.Options{Optional: l.g.standby, Look: l.g.src.look}
		if l.cool, err = scope.Hold(l.g.mgr, l.g.hub, o, l.g.options.standby); err != nil {
			l.g.log.Error(err, "the informers of WarmStandby are not held")
		}
	case !want && l.cool != nil:
		l.cool()
		l.cool = nil
	}
}

// asked is the last report that was not Unknown.
func (l *loop) asked() Status {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	return l.g.asked
}

func (l *loop) desire() machine.Fact {
	asked := l.asked()
	switch {
	case l.stopping || !l.elected || asked.State != True:
		return machine.Unwanted
	case asked.Identity != l.identity:
		return machine.Changed
	}
	return machine.Wanted
}

// hear takes the news of a life; with the last of them the life is over.
func (l *loop) hear(ctx context.Context, n news) {
	over := n.fact == machine.Ended || n.fact == machine.Erred
	if over || n.fact == returned {
		l.g.scope.Store(nil)
	}
	if n.fact == returned {
		l.apply(ctx, machine.Broke, nil)
		l.alarm(machine.Overdue, l.g.options.drainTimeout+time.Second) // AfterStop has a time of its own.
		return
	}
	l.apply(ctx, n.fact, n.err)
	if over {
		l.life = nil
	}
}

// apply makes one move of the machine and reports whether there was one.
func (l *loop) apply(ctx context.Context, f machine.Fact, err error) bool {
	from := l.g.Status().Phase
	if from == Dormant && f == machine.Changed {
		f = machine.Wanted // Nothing lives, so any identity will do.
	}
	to, do := machine.Next(from, f)
	if to == from || do == machine.Activate && l.heldBack() {
		return false
	}
	l.timer.Stop()
	t := l.g.enter(to, f, err)
	if l.life != nil {
		l.measure(t)
	}
	l.g.tell(t, l.life != nil && !l.life.up.IsZero())
	l.g.onTransition(t)
	l.perform(ctx, do, t.At)
	return true
}

// heldBack tells whether the restart limit forbids a start now; then the timer wakes the loop when it no longer does.
func (l *loop) heldBack() bool {
	until := l.pace.Next()
	pause := time.Until(until)
	if pause <= 0 {
		return false
	}
	l.alarm(machine.Retry, pause)
	l.g.hold(until)
	if until != l.told {
		l.told = until
		l.g.log.Info("the restart limit holds the next start back", "until", until)
	}
	return true
}

func (l *loop) perform(ctx context.Context, do machine.Action, now time.Time) {
	switch do {
	case machine.Activate:
		l.identity = l.asked().Identity
		l.pace.Start(now)
		l.life = begin(ctx, l.g, now)
	case machine.Cancel:
		l.life.cancel()
		l.alarm(machine.Overdue, l.g.options.drainTimeout)
	case machine.Seal:
		l.life.seal()
	case machine.BackOff:
		if now.Sub(l.life.began) > l.g.options.startBackoff.Cap {
			l.backoff = l.g.options.startBackoff
		}
		l.alarm(machine.Retry, l.backoff.Step())
	case machine.Forgive:
		l.backoff = l.g.options.startBackoff
	case machine.Stay:
	}
}

// measure notes the times of the life that a transition is about.
func (l *loop) measure(t Transition) {
	switch t.To {
	case Running:
		l.life.up = t.At
		l.g.gauges.Started(t.Group, t.At.Sub(l.life.began))
	case Draining:
		l.life.drained = t.At
	case Dormant, Failed:
		if !l.life.drained.IsZero() {
			l.g.gauges.Stopped(t.Group, t.At.Sub(l.life.drained))
		}
	case Starting, Stuck:
	}
	if t.From == Running {
		l.pace.Ran(t.At.Sub(l.life.up))
	}
}

func (l *loop) alarm(due machine.Fact, after time.Duration) {
	l.due = due
	l.timer.Reset(after)
}

// observe runs the condition, again with a back-off after it failed.
func (g *Group) observe(ctx context.Context) {
	childOf(g.when, g.src).Keep(ctx, g.options.startBackoff, g.report)
}

// watchOptional keeps the manager's cache informed of the optional kinds; a scope follows them only while it lives.
func (g *Group) watchOptional(ctx context.Context) {
	if len(g.optional) == 0 || g.src.outer == nil {
		return
	}
	src := g.src
	src.terminating = nil
	if err := detectWith(ctx, src, g.optional, func([]detect.Verdict) {}); err != nil {
		g.log.Error(err, "optional kinds are not watched outside of the group")
	}
}
