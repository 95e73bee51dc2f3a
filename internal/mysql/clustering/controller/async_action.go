// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/clustering"
)

const (
	// passActionWait is how long a pass waits for an action. One that takes longer goes on, and is seen as pending.
	passActionWait = time.Second
	// actionTimeout is how long an action may take. Then it is given up, and what still runs in the server is cancelled.
	actionTimeout = 30 * time.Second
	// cloneTimeout is for a copy of all data.
	cloneTimeout = 24 * time.Hour
)

// errBusy is returned for an action on an instance while another one runs there.
var errBusy = errors.New("an earlier act still runs")

// asyncAction is an action that may go on while passes come and go.
type asyncAction struct {
	do        clustering.Action
	startedAt time.Time
	cancel    context.CancelFunc
	done      chan struct{}
	// err is set before done is closed.
	err error
}

func (a *asyncAction) isRunning() bool {
	if a == nil {
		return false
	}
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// startAction starts an action and waits for it, but not for long.
func (c *clusterConns) startAction(ctx context.Context, i int, do clustering.Action, run func(context.Context) error) error {
	wait, timeout := passActionWait, actionTimeout
	if _, isClone := do.(clustering.CloneFrom); isClone {
		wait, timeout = 0, cloneTimeout
	}
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout) // It may outlive the pass.
	action := &asyncAction{do: do, startedAt: c.manager.clock.Now(), cancel: cancel, done: make(chan struct{})}
	conn, err := c.launch(longer, i, action, run)
	if err != nil {
		cancel()
		return err
	}
	if !action.awaitDone(ctx, wait) {
		return nil
	}
	conn.action = nil
	return action.err
}

// launch runs an action in a goroutine. It holds the lock all the time: once closed is set, no goroutine may be added to
// those that the manager waits for.
func (c *clusterConns) launch(ctx context.Context, i int, action *asyncAction, run func(context.Context) error) (*instanceConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.instances[i]
	switch {
	case c.closed:
		return nil, errClosed
	case conn == nil:
		return nil, errNoConnection
	case conn.action.isRunning():
		return nil, errBusy
	}
	conn.action = action
	c.manager.goroutines.Go(func() {
		defer action.cancel()
		action.err = run(ctx)
		close(action.done)
	})
	return conn, nil
}

// awaitDone waits until the action is over, for so long or until ctx ends, and reports whether it is over.
func (a *asyncAction) awaitDone(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-a.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// interruptAction gives up the action that runs on an instance, and waits until it is over.
func (c *clusterConns) interruptAction(ctx context.Context, i int) {
	c.mu.Lock()
	conn := c.instances[i]
	c.mu.Unlock()
	if conn == nil || !conn.action.isRunning() {
		return
	}
	conn.action.cancel()
	conn.action.awaitDone(ctx, passActionWait)
}

// collectResults adds to the history how actions ended that no pass waited for.
func (c *clusterConns) collectResults(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.instances {
		if conn.action == nil || conn.action.isRunning() {
			continue
		}
		if conn.action.err != nil {
			c.recordResult(conn.action.do, now, describeError(conn.action.err))
		}
		conn.action = nil
	}
}
