// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/torpor-dev/torpor/actuator"
)

// maxBatchSize is how many machines one call names; EC2 advises to stay below 1000.
const maxBatchSize = 500

// Start implements actuator.Actuator. The error names the machines that could not start.
func (a *Actuator) Start(ctx context.Context, t actuator.Target, ids []string) error {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return err
	}
	return c.changePower(ctx, startInstances, ids, func(ctx context.Context, ids []string) error {
		_, err := c.api.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: ids})
		return err
	})
}

// Stop implements actuator.Actuator. Machines that EC2 can only terminate, such as those of one-time spot requests, are
// left as they are and named in the error.
func (a *Actuator) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return err
	}
	return c.changePower(ctx, stopInstances, ids, func(ctx context.Context, ids []string) error {
		_, err := c.api.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids})
		return err
	})
}

// changePower starts or stops all machines in as few calls as possible. The machines that are refused end up in one error.
func (c *accountClient) changePower(ctx context.Context, operation string, ids []string, do func(context.Context, []string) error) error {
	refused := refusedMachines{}
	for batch := range slices.Chunk(ids, maxBatchSize) {
		if err := c.changePowerOfBatch(ctx, operation, batch, do, refused); err != nil {
			return err
		}
	}
	return refused.combinedError(operation)
}

// changePowerOfBatch collects the machines that are refused. It returns an error when it makes no sense to go on with others.
func (c *accountClient) changePowerOfBatch(ctx context.Context, operation string, ids []string, do func(context.Context, []string) error, refused refusedMachines) error {
	err := c.callWithTimeout(ctx, operation, func(ctx context.Context) error { return do(ctx, ids) })
	machine, ok := errors.AsType[*machineRefusedError](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return err
	case len(ids) == 1:
		refused[machine.code] = append(refused[machine.code], refusedMachine{id: ids[0], why: machine})
		return nil
	}
	// EC2 refuses a whole batch for one bad machine, so each half is tried by itself, down to the machines that are refused.
	middle := len(ids) / 2
	if err := c.changePowerOfBatch(ctx, operation, ids[:middle], do, refused); err != nil {
		return err
	}
	return c.changePowerOfBatch(ctx, operation, ids[middle:], do, refused)
}

// refusedMachines are the machines that the cloud refused, by the code of its error.
type refusedMachines map[string][]refusedMachine

type refusedMachine struct {
	id  string
	why *machineRefusedError
}

// combinedError returns one error for all of them, with the class that needs attention most, or nil if there are none.
func (r refusedMachines) combinedError(operation string) error {
	if len(r) == 0 {
		return nil
	}
	var parts []string
	urgent := actuator.WrongState
	// The message is the same each time, whatever the order of the calls: a condition shows it, and a change is a write.
	for _, code := range slices.Sorted(maps.Keys(r)) {
		machines := slices.SortedFunc(slices.Values(r[code]), func(a, b refusedMachine) int { return cmp.Compare(a.id, b.id) })
		if class := machines[0].why.class; urgencyOf(class) > urgencyOf(urgent) {
			urgent = class
		}
		parts = append(parts, fmt.Sprintf("%s for %s: %s", code, joinMachineIDs(machines), machines[0].why.message))
	}
	return &actuator.Error{Class: urgent, Message: operation + ": " + strings.Join(parts, "; ")}
}

// urgencyOf orders the classes of refusals of single machines, and is negative for all other classes.
func urgencyOf(c actuator.ErrorClass) int {
	// A wrong state comes last because it passes by itself.
	return slices.Index([]actuator.ErrorClass{actuator.WrongState, actuator.NotFound, actuator.Other, actuator.NoCapacity}, c)
}

// joinMachineIDs names the first machines, because a message has to stay readable.
func joinMachineIDs(machines []refusedMachine) string {
	const shown = 20
	var names []string
	for _, m := range machines[:min(shown, len(machines))] {
		names = append(names, m.id)
	}
	text := strings.Join(names, ", ")
	if more := len(machines) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
