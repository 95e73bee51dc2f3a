// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
	"github.com/torpor-dev/torpor/local/cloud/process"
)

// recheckInterval is how soon a killed process group is looked at again; the kernel does not notify of the end of its last member.
const recheckInterval = 10 * time.Millisecond

// restoreMachines ends what an earlier life left behind and starts the machines that are meant to run.
func (c *Cloud) restoreMachines() error {
	known, err := c.store.loadState()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.gracePeriod)
	defer cancel()
	c.state = known
	for _, i := range known.Instances {
		if err := i.Process.KillOrphan(ctx, i.ID); err != nil {
			return fmt.Errorf("end the machine of %s from the cloud's earlier life (pid %d): %w", i.ID, i.Process.PID, err)
		}
		i.Process = process.Identity{}
		if i.State == running {
			i = c.bootMachine(i, time.Now())
		}
		c.state = c.state.withInstances(i)
	}
	return c.store.saveState(c.state)
}

// runTransitions carries out what time brings, until the cloud is closed.
func (c *Cloud) runTransitions() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-c.wake:
		case <-timer.C:
		}
		if again := c.advanceAll(time.Now()); again.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(again))
		}
	}
}

// wakeUp makes run take a turn now.
func (c *Cloud) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// advanceAll carries out everything that is due and returns when to look again: zero means only when something happens.
func (c *Cloud) advanceAll(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return time.Time{}
	}
	var next time.Time
	var changed []instance
	var forgotten []string
	for _, before := range c.state.Instances {
		if before.State == terminated && !now.Before(before.Due) {
			forgotten = append(forgotten, before.ID)
			continue
		}
		after, again := c.advanceInstance(before, now)
		if after.State != before.State {
			changed = append(changed, after)
			again = after.Due
		}
		if !again.IsZero() && (next.IsZero() || again.Before(next)) {
			next = again
		}
	}
	if len(changed)+len(forgotten) > 0 {
		c.saveTransitions(changed, forgotten)
	}
	return next
}

// saveTransitions keeps what time has changed. It has happened, so a disk that refuses does not undo it: the file is whole
// again with the next change.
func (c *Cloud) saveTransitions(changed []instance, forgotten []string) {
	after := c.state.withInstances(changed...).withoutInstances(forgotten...)
	// Time cannot be refused: what the disk does not take now, it gets with the next change.
	if err := c.saveChanges(after, changed...); err != nil {
		c.config.Log.Error("the state of the cloud is not on the disk", "error", err)
		c.state = after
	}
}

// saveChanges makes the ledger durable and then current.
func (c *Cloud) saveChanges(after cloudState, changed ...instance) error {
	if err := c.store.saveState(after); err != nil {
		return err
	}
	for _, i := range changed {
		if before := c.state.Instances[i.ID].State; before != i.State {
			c.config.Log.Info("instance changed", "instance", i.ID, "from", string(before), "to", string(i.State))
		}
	}
	c.state = after
	c.wakeUp()
	return nil
}

// advanceInstance returns the instance as it is now, and when to look at it again if nothing happens before.
func (c *Cloud) advanceInstance(i instance, now time.Time) (instance, time.Time) {
	switch {
	case i.State == running:
		return c.watchMachine(i, now)
	case i.Due.IsZero():
		return i, time.Time{}
	case now.Before(i.Due):
		return i, i.Due
	case c.isStuck(i):
		return i, time.Time{}
	case i.State == pending:
		return c.bootMachine(i.afterLatency(now), now), time.Time{}
	default:
		return c.haltMachine(i, now)
	}
}

// bootMachine starts the command of an instance that has become running.
func (c *Cloud) bootMachine(i instance, now time.Time) instance {
	if c.losesStart(i) {
		return i.stoppedUnasked(ec2query.ServerInsufficientInstanceCapacity, "Insufficient capacity to satisfy instance request", now)
	}
	if i.Command == nil {
		return i
	}
	p, err := c.starter.Start(i.processCommand())
	if err != nil {
		c.config.Log.Error("the machine does not start", "instance", i.ID, "error", err)
		return i.stoppedUnasked(ec2query.ClientInternalError, "Client error on launch", now)
	}
	i.Process = p.Identity()
	c.processes[i.ID] = p
	// The end of the machine makes the cloud look at once, without waiting for a timer.
	c.work.Go(func() {
		select {
		case <-p.Exited():
			c.wakeUp()
		case <-c.done:
		}
	})
	return i
}

// watchMachine notices a machine that ends by itself: all it started ends with it.
func (c *Cloud) watchMachine(i instance, now time.Time) (instance, time.Time) {
	p := c.processes[i.ID]
	if p == nil {
		return i, time.Time{}
	}
	select {
	case <-p.Exited():
	default:
		return i, time.Time{}
	}
	// What the machine has started ends with it, which may take another moment.
	if !c.ensureEnded(i.ID) {
		return i, now.Add(recheckInterval)
	}
	return i.stoppedUnasked(ec2query.ClientInstanceInitiatedShutdown, "Instance initiated shutdown", now), time.Time{}
}

// haltMachine ends a stop or a termination whose latency is over, once the machine is really gone.
func (c *Cloud) haltMachine(i instance, now time.Time) (instance, time.Time) {
	if !c.ensureEnded(i.ID) {
		return i, now.Add(recheckInterval)
	}
	return i.afterLatency(now), time.Time{}
}

// ensureEnded kills what is left of a machine and reports whether it is gone.
func (c *Cloud) ensureEnded(id string) bool {
	p := c.processes[id]
	if p == nil {
		return true
	}
	if !p.IsGone() {
		p.Kill()
		return false
	}
	delete(c.processes, id)
	return true
}

// processCommand returns what the instance runs, with its own values put in.
func (i instance) processCommand() process.Command {
	own := strings.NewReplacer("{{ip}}", i.PrivateIP, "{{id}}", i.ID, "{{dns}}", i.PrivateDNS)
	c := process.Command{Marker: i.ID, Log: own.Replace(i.Command.Log), Env: map[string]string{}}
	for _, arg := range i.Command.Argv {
		c.Argv = append(c.Argv, own.Replace(arg))
	}
	for name, value := range i.Command.Env {
		c.Env[name] = own.Replace(value)
	}
	return c
}
