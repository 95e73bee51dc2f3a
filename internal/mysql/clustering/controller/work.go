// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/clustering"
)

const (
	// actPatience is how long a pass waits for an act. One that takes longer goes on, and is seen as pending.
	actPatience = time.Second
	// actBound is how long an act may take at all. Then it is given up, and what still runs in the server is cancelled.
	actBound = 30 * time.Second
	// cloneBound is for a copy of all data.
	cloneBound = 24 * time.Hour
)

// errBusy is told to who comes while an act runs.
var errBusy = errors.New("an earlier act still runs")

// work is an act that may go on while passes come and go.
type work struct {
	do     clustering.Action
	began  time.Time
	cancel context.CancelFunc
	done   chan struct{}
	// err is set before done is closed.
	err error
}

func (w *work) running() bool {
	if w == nil {
		return false
	}
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// start begins an act and waits for it, but not for long.
func (c *crew) start(ctx context.Context, i int, do clustering.Action, run func(context.Context) error) error {
	c.mu.Lock()
	m := c.members[i]
	switch {
	case c.closed:
		c.mu.Unlock()
		return errClosed
	case m == nil:
		c.mu.Unlock()
		return errNoConnection
	case m.work.running():
		c.mu.Unlock()
		return errBusy
	}
	bound, patience := actBound, actPatience
	if _, clone := do.(clustering.CloneFrom); clone {
		bound, patience = cloneBound, 0
	}
	long, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	w := &work{do: do, began: c.keeper.clock.Now(), cancel: cancel, done: make(chan struct{})}
	m.work = w
	c.keeper.busy.Go(func() {
		defer cancel()
		w.err = run(long)
		close(w.done)
	})
	c.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.done:
		m.work = nil
		return w.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// interrupt gives up the act that runs on an instance, and waits until it is over.
func (c *crew) interrupt(ctx context.Context, i int) {
	c.mu.Lock()
	m := c.members[i]
	c.mu.Unlock()
	if m == nil || !m.work.running() {
		return
	}
	m.work.cancel()
	timer := time.NewTimer(actPatience)
	defer timer.Stop()
	select {
	case <-m.work.done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// collect remembers how acts ended that no pass waited for.
func (c *crew) collect(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.work == nil || m.work.running() {
			continue
		}
		if m.work.err != nil {
			c.note(m.work.do, now, describe(m.work.err))
		}
		m.work = nil
	}
}
