// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/wire"
)

func (c *Cloud) startInstances(q wire.Request, now time.Time) (wire.Body, error) {
	return c.power(q, start, now)
}

func (c *Cloud) terminateInstances(q wire.Request, now time.Time) (wire.Body, error) {
	return c.power(q, terminate, now)
}

func (c *Cloud) stopInstances(q wire.Request, now time.Time) (wire.Body, error) {
	hibernate, err := q.Flag("Hibernate")
	if err != nil {
		return nil, err
	}
	if hibernate {
		return nil, wire.Errorf(wire.UnsupportedHibernationConfiguration, "The instances of this cloud are not configured for hibernation.")
	}
	return c.power(q, stop, now)
}

// power asks one verb of all named instances: either all of them follow or none.
func (c *Cloud) power(q wire.Request, v verb, now time.Time) (wire.Body, error) {
	force, err := q.Flag("Force")
	if err != nil {
		return nil, err
	}
	ids := q.List("InstanceId")
	if len(ids) == 0 {
		return nil, wire.Errorf(wire.MissingParameter, "The request must contain the parameter InstanceId")
	}
	before, err := c.find(ids)
	if err != nil {
		return nil, err
	}
	after, err := c.askAll(before, v, now)
	if err != nil {
		return nil, err
	}
	if err := c.commit(c.ledger.with(after...), after...); err != nil {
		return nil, err
	}
	answer := &wire.StateChanges{}
	for n, i := range after {
		c.signal(before[n], i, force && v == stop)
		answer.Instances.Items = append(answer.Instances.Items, wire.StateChange{
			InstanceID: i.ID, Current: answerState(i.State), Previous: answerState(before[n].State),
		})
	}
	return answer, nil
}

func (c *Cloud) askAll(before []instance, v verb, now time.Time) ([]instance, error) {
	var after []instance
	var refused []string
	for _, i := range before {
		if v == stop && i.Spot && !i.Persistent {
			return nil, wire.Errorf(wire.UnsupportedOperation, "You can't stop the Spot Instance '%s' because it is associated with a one-time Spot Instance request. You can only stop Spot Instances associated with persistent Spot Instance requests.", i.ID)
		}
		next, ok := i.ask(v, now, c.latencies)
		if !ok {
			refused = append(refused, i.ID)
		}
		after = append(after, next)
	}
	if len(refused) > 0 {
		done := map[verb]string{start: "started", stop: "stopped", terminate: "terminated"}[v]
		return nil, wire.Errorf(wire.IncorrectInstanceState, "The instance '%s' is not in a state from which it can be %s.", strings.Join(refused, ", "), done)
	}
	return after, nil
}

// signal tells the machine of an instance that now has to end: once politely, or at once when forced, also in a
// stop that is under way.
func (c *Cloud) signal(before, after instance, force bool) {
	p := c.processes[after.ID]
	if p == nil || (after.State != stopping && after.State != shuttingDown) {
		return
	}
	switch {
	case force:
		p.Kill()
	case before.State != after.State:
		p.Terminate()
	}
}
