// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Start observes the condition and runs the group until ctx ends. The manager calls it.
func (g *Group) Start(ctx context.Context) error {
	defer g.release()
	var observer sync.WaitGroup
	observer.Go(func() { g.observe(ctx) })
	defer observer.Wait()
	g.gauges.show(g.options.name, Dormant)
	return (&loop{g: g, backoff: g.options.startBackoff}).run(ctx)
}

// loop owns the state machine of one group; only its goroutine touches it.
type loop struct {
	g        *Group
	life     *life // the one that lives, nil when nothing does
	began    time.Time
	identity string // of the last life
	backoff  wait.Backoff
	timer    *time.Timer // of the drain timeout or the back-off, which never overlap
	due      fact        // what the timer means
	elected  bool
	stopping bool
}

func (l *loop) run(ctx context.Context) error {
	stop, elected := ctx.Done(), l.g.mgr.Elected()
	l.timer = time.NewTimer(time.Hour)
	l.timer.Stop()
	defer l.timer.Stop()
	for {
		l.settle(ctx)
		if l.stopping && l.life == nil {
			return nil
		}
		if l.stopping && l.g.Status().Phase == Stuck {
			return fmt.Errorf("group %s: a runnable has not returned within %s: let it end with its context", l.g.options.name, l.g.options.drainTimeout)
		}
		select {
		case <-stop:
			l.stopping, stop = true, nil
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
	for l.apply(ctx, l.desire(), nil) {
	}
}

func (l *loop) desire() fact {
	l.g.mu.Lock()
	asked := l.g.asked
	l.g.mu.Unlock()
	switch {
	case l.stopping || !l.elected || asked.State != True:
		return unwanted
	case asked.Identity != l.identity:
		return changed
	}
	return wanted
}

// hear takes the news of a life; with the last of them the life is over.
func (l *loop) hear(ctx context.Context, n news) {
	if n.fact == ended || n.fact == erred {
		l.life = nil
		l.g.scope.Store(nil)
	}
	l.apply(ctx, n.fact, n.err)
}

// apply makes one move of the machine and reports whether there was one.
func (l *loop) apply(ctx context.Context, f fact, err error) bool {
	from := l.g.Status().Phase
	if from == Dormant && f == changed {
		f = wanted // Nothing lives, so any identity will do.
	}
	to, do := next(from, f)
	if to == from {
		return false
	}
	l.timer.Stop()
	l.g.enter(to, f, err)
	l.perform(ctx, do)
	return true
}

func (l *loop) perform(ctx context.Context, do action) {
	switch do {
	case activate:
		l.g.mu.Lock()
		l.identity = l.g.asked.Identity
		l.g.mu.Unlock()
		l.began = time.Now()
		l.life = begin(ctx, l.g)
	case cancel:
		l.life.cancel()
		l.alarm(overdue, l.g.options.drainTimeout)
	case seal:
		l.life.seal()
	case backOff:
		if time.Since(l.began) > l.g.options.startBackoff.Cap {
			l.backoff = l.g.options.startBackoff
		}
		l.alarm(retry, l.backoff.Step())
	case forgive:
		l.backoff = l.g.options.startBackoff
	case stay:
	}
}

func (l *loop) alarm(due fact, after time.Duration) {
	l.due = due
	l.timer.Reset(after)
}

// observe runs the condition, again with a back-off after it failed.
func (g *Group) observe(ctx context.Context) {
	childOf(g.when, g.src).Keep(ctx, g.options.startBackoff, g.report)
}
