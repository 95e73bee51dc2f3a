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

	"github.com/torpor-dev/torpor/actuator"
)

// maxBatchSize is how many machines one call names; EC2 advises to stay below 1000.
const maxBatchSize = 500

// changePower asks one thing of all machines in as few calls as possible. EC2 refuses a whole batch for one bad machine, so
// a refused batch is asked again in halves, down to the machines that are refused. They end up in one error.
func (c *accountClient) changePower(ctx context.Context, operation string, ids []string, do func(context.Context, []string) error) error {
	refused := refusedMachines{}
	for batch := range slices.Chunk(ids, maxBatchSize) {
		if err := c.changePowerOfBatch(ctx, operation, batch, do, refused); err != nil {
			return err
		}
	}
	return refused.combinedError(operation)
}

// changePowerOfBatch returns an error when it makes no sense to go on with other machines.
func (c *accountClient) changePowerOfBatch(ctx context.Context, operation string, ids []string, do func(context.Context, []string) error, refused refusedMachines) error {
	err := c.callWithTimeout(ctx, operation, func(ctx context.Context) error { return do(ctx, ids) })
	machine, ok := errors.AsType[*machineRefusal](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return err
	case len(ids) == 1:
		refused[machine.code] = append(refused[machine.code], refusedMachine{id: ids[0], why: machine})
		return nil
	}
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
	why *machineRefusal
}

// combinedError returns one error for all of them, with the class that needs attention most.
func (r refusedMachines) combinedError(operation string) error {
	if len(r) == 0 {
		return nil
	}
	var parts []string
	urgent := actuator.WrongState
	for _, code := range slices.Sorted(maps.Keys(r)) {
		machines := slices.SortedFunc(slices.Values(r[code]), func(a, b refusedMachine) int { return cmp.Compare(a.id, b.id) })
		if class := machines[0].why.class; urgencyOf(class) > urgencyOf(urgent) {
			urgent = class
		}
		parts = append(parts, fmt.Sprintf("%s for %s: %s", code, joinMachineIDs(machines), machines[0].why.message))
	}
	return &actuator.Error{Class: urgent, Message: operation + ": " + strings.Join(parts, "; ")}
}

// urgencyOf orders the classes of refusals: a wrong state passes by itself.
func urgencyOf(c actuator.ErrorClass) int {
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
