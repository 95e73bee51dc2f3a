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

// largestBatch is how many machines one call names; EC2 advises to stay below 1000.
const largestBatch = 500

// power asks one thing of all machines in as few calls as possible. EC2 refuses a whole batch for one bad machine, so
// a refused batch is asked again in halves, down to the machines that are refused. They end up in one error.
func (c *client) power(ctx context.Context, operation string, ids []string, do func(context.Context, []string) error) error {
	refused := refusals{}
	for batch := range slices.Chunk(ids, largestBatch) {
		if err := c.halve(ctx, operation, batch, do, refused); err != nil {
			return err
		}
	}
	return refused.err(operation)
}

// halve returns an error when it makes no sense to go on with other machines.
func (c *client) halve(ctx context.Context, operation string, ids []string, do func(context.Context, []string) error, refused refusals) error {
	err := c.call(ctx, operation, func(ctx context.Context) error { return do(ctx, ids) })
	machine, ok := errors.AsType[*refusal](err)
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
	if err := c.halve(ctx, operation, ids[:middle], do, refused); err != nil {
		return err
	}
	return c.halve(ctx, operation, ids[middle:], do, refused)
}

// refusals are the machines that the cloud refused, by the code of its error.
type refusals map[string][]refusedMachine

type refusedMachine struct {
	id  string
	why *refusal
}

// err returns one error for all of them, with the class that needs attention most.
func (r refusals) err(operation string) error {
	if len(r) == 0 {
		return nil
	}
	var parts []string
	urgent := actuator.WrongState
	for _, code := range slices.Sorted(maps.Keys(r)) {
		machines := slices.SortedFunc(slices.Values(r[code]), func(a, b refusedMachine) int { return cmp.Compare(a.id, b.id) })
		if class := machines[0].why.class; urgency(class) > urgency(urgent) {
			urgent = class
		}
		parts = append(parts, fmt.Sprintf("%s for %s: %s", code, few(machines), machines[0].why.message))
	}
	return &actuator.Error{Class: urgent, Message: operation + ": " + strings.Join(parts, "; ")}
}

// urgency orders the classes of refusals: a wrong state passes by itself.
func urgency(c actuator.Class) int {
	return slices.Index([]actuator.Class{actuator.WrongState, actuator.NotFound, actuator.Other, actuator.NoCapacity}, c)
}

// few names the first machines, because a message has to stay readable.
func few(machines []refusedMachine) string {
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
