// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/process"
	"github.com/torpor-dev/torpor/local/cloud/wire"
)

// recheck is how soon a killed process group is looked at again; nothing tells when its last member ends.
const recheck = 10 * time.Millisecond

// resume ends what an earlier life left behind and starts the machines that are meant to run.
func (c *Cloud) resume() error {
	known, err := c.store.load()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.grace)
	defer cancel()
	c.ledger = known
	for _, i := range known.Instances {
		if err := i.Process.KillOrphan(ctx, i.ID); err != nil {
			return fmt.Errorf("end the machine of %s from the cloud's earlier life (pid %d): %w", i.ID, i.Process.PID, err)
		}
		i.Process = process.Identity{}
		if i.State == running {
			i = c.boot(i, time.Now())
		}
		c.ledger = c.ledger.with(i)
	}
	return c.store.save(c.ledger)
}

// run carries out what time brings, until the cloud is closed.
func (c *Cloud) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-c.wake:
		case <-timer.C:
		}
		if again := c.turn(time.Now()); again.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(again))
		}
	}
}

// look makes run take a turn now.
func (c *Cloud) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// turn carries out everything that is due and returns when to look again: zero means only when something happens.
func (c *Cloud) turn(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return time.Time{}
	}
	var next time.Time
	var changed []instance
	var forgotten []string
	for _, before := range c.ledger.Instances {
		if before.State == terminated && !now.Before(before.Due) {
			forgotten = append(forgotten, before.ID)
			continue
		}
		after, again := c.advance(before, now)
		if after.State != before.State {
			changed = append(changed, after)
			again = after.Due
		}
		if !again.IsZero() && (next.IsZero() || again.Before(next)) {
			next = again
		}
	}
	if len(changed)+len(forgotten) > 0 {
		c.settle(changed, forgotten)
	}
	return next
}

// settle keeps what time has changed. It has happened, so a disk that refuses does not undo it: the file is whole
// again with the next change.
func (c *Cloud) settle(changed []instance, forgotten []string) {
	after := c.ledger.with(changed...).without(forgotten...)
	if err := c.commit(after, changed...); err != nil {
		c.config.Log.Error("the state of the cloud is not on the disk", "error", err)
		c.ledger = after
	}
}

// commit makes the ledger durable and then current.
func (c *Cloud) commit(after ledger, changed ...instance) error {
	if err := c.store.save(after); err != nil {
		return err
	}
	for _, i := range changed {
		if before := c.ledger.Instances[i.ID].State; before != i.State {
			c.config.Log.Info("instance changed", "instance", i.ID, "from", string(before), "to", string(i.State))
		}
	}
	c.ledger = after
	c.look()
	return nil
}

// advance returns the instance as it is now, and when to look at it again if nothing happens before.
func (c *Cloud) advance(i instance, now time.Time) (instance, time.Time) {
	switch {
	case i.State == running:
		return c.watch(i, now)
	case i.Due.IsZero():
		return i, time.Time{}
	case now.Before(i.Due):
		return i, i.Due
	case c.holds(i):
		return i, time.Time{}
	case i.State == pending:
		return c.boot(i.elapse(now), now), time.Time{}
	default:
		return c.halt(i, now)
	}
}

// boot starts the command of an instance that has become running.
func (c *Cloud) boot(i instance, now time.Time) instance {
	if c.loses(i) {
		return i.fall(wire.ServerInsufficientInstanceCapacity, "Insufficient capacity to satisfy instance request", now)
	}
	if i.Command == nil {
		return i
	}
	p, err := c.starter.Start(i.process())
	if err != nil {
		c.config.Log.Error("the machine does not start", "instance", i.ID, "error", err)
		return i.fall(wire.ClientInternalError, "Client error on launch", now)
	}
	i.Process = p.Identity()
	c.processes[i.ID] = p
	c.work.Go(func() {
		select {
		case <-p.Exited():
			c.look()
		case <-c.done:
		}
	})
	return i
}

// watch notices a machine that ends by itself: all it started ends with it.
func (c *Cloud) watch(i instance, now time.Time) (instance, time.Time) {
	p := c.processes[i.ID]
	if p == nil {
		return i, time.Time{}
	}
	select {
	case <-p.Exited():
	default:
		return i, time.Time{}
	}
	if !c.ended(i.ID) {
		return i, now.Add(recheck)
	}
	return i.fall(wire.ClientInstanceInitiatedShutdown, "Instance initiated shutdown", now), time.Time{}
}

// halt ends a stop or a termination whose latency is over, once the machine is really gone.
func (c *Cloud) halt(i instance, now time.Time) (instance, time.Time) {
	if !c.ended(i.ID) {
		return i, now.Add(recheck)
	}
	return i.elapse(now), time.Time{}
}

// ended kills what is left of a machine and tells whether it is gone.
func (c *Cloud) ended(id string) bool {
	p := c.processes[id]
	if p == nil {
		return true
	}
	if !p.Gone() {
		p.Kill()
		return false
	}
	delete(c.processes, id)
	return true
}

// process returns what the instance runs, with its own values put in.
func (i instance) process() process.Command {
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
