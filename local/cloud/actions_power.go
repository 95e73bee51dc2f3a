// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

func (c *Cloud) startInstances(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	return c.changePower(q, start, now)
}

func (c *Cloud) terminateInstances(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	return c.changePower(q, terminate, now)
}

func (c *Cloud) stopInstances(q ec2query.Request, now time.Time) (ec2query.Answer, error) {
	hibernate, err := q.ParseFlag("Hibernate")
	if err != nil {
		return nil, err
	}
	if hibernate {
		return nil, ec2query.NewErrorf(ec2query.UnsupportedHibernationConfiguration, "The instances of this cloud are not configured for hibernation.")
	}
	return c.changePower(q, stop, now)
}

// changePower asks one verb of all named instances: either all of them follow or none.
func (c *Cloud) changePower(q ec2query.Request, v powerVerb, now time.Time) (ec2query.Answer, error) {
	force, err := q.ParseFlag("Force")
	if err != nil {
		return nil, err
	}
	ids := q.ListValues("InstanceId")
	if len(ids) == 0 {
		return nil, ec2query.NewErrorf(ec2query.MissingParameter, "The request must contain the parameter InstanceId")
	}
	before, err := c.findInstances(ids)
	if err != nil {
		return nil, err
	}
	after, err := c.requestAll(before, v, now)
	if err != nil {
		return nil, err
	}
	// A crash must not forget a stop whose machine is gone, so the disk comes before the signals.
	if err := c.saveChanges(c.state.withInstances(after...), after...); err != nil {
		return nil, err
	}
	answer := &ec2query.StateChangesAnswer{}
	for n, i := range after {
		c.signalMachine(before[n], i, force && v == stop)
		answer.Instances.Items = append(answer.Instances.Items, ec2query.StateChange{
			InstanceID: i.ID, Current: answerState(i.State), Previous: answerState(before[n].State),
		})
	}
	return answer, nil
}

func (c *Cloud) requestAll(before []instance, v powerVerb, now time.Time) ([]instance, error) {
	var after []instance
	var refused []string
	for _, i := range before {
		if v == stop && i.Spot && !i.Persistent {
			return nil, ec2query.NewErrorf(ec2query.UnsupportedOperation, "You can't stop the Spot Instance '%s' because it is associated with a one-time Spot Instance request. You can only stop Spot Instances associated with persistent Spot Instance requests.", i.ID)
		}
		next, ok := i.afterRequest(v, now, c.latencies)
		if !ok {
			refused = append(refused, i.ID)
		}
		after = append(after, next)
	}
	if len(refused) > 0 {
		done := map[powerVerb]string{start: "started", stop: "stopped", terminate: "terminated"}[v]
		return nil, ec2query.NewErrorf(ec2query.IncorrectInstanceState, "The instance '%s' is not in a state from which it can be %s.", strings.Join(refused, ", "), done)
	}
	return after, nil
}

// signalMachine signals the machine of an instance that has to end: SIGTERM once, or SIGKILL when forced, also in a
// stop that is under way.
func (c *Cloud) signalMachine(before, after instance, force bool) {
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
