// SPDX-License-Identifier: Apache-2.0

// Package orders stops and starts the machines of clusters at clouds that take orders for single machines only.
package orders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/torpor-dev/torpor/actuator"
)

// ParallelCalls is how many calls are made at once for one account. Each machine takes one, and an order may be for thousands.
const ParallelCalls = 16

// RefusedError is an answer of the cloud that is of one machine.
type RefusedError struct {
	// Class is one of WrongState, NotFound, Other and NoCapacity.
	Class actuator.ErrorClass
	// Code is the cloud's own name of the trouble; machines with the same code share the message of the first of them.
	Code, Message string
}

// Error implements error.
func (r *RefusedError) Error() string { return r.Code + ": " + r.Message }

// Run calls order for each machine of the clusters, by its ID, and returns an error for each cluster as actuator.BatchActuator wants it.
// order returns a *RefusedError for what is of one machine. Once the cloud has said what holds for the whole account, no more calls are
// made, nor after so many without an answer as are made at once.
func Run(operation string, clusters [][]string, order func(id string) error) []error {
	var ofAccount atomic.Pointer[error]
	var silent atomic.Int32
	var work errgroup.Group
	work.SetLimit(ParallelCalls)
	results := make([][]error, len(clusters))
	for i, ids := range clusters {
		results[i] = make([]error, len(ids))
		for j, id := range ids {
			work.Go(func() error {
				if ended := ofAccount.Load(); ended != nil {
					results[i][j] = *ended
					return nil
				}
				err := order(id)
				results[i][j] = err
				if isOfAccount(err) || actuator.ClassOf(err) == actuator.Unreachable && silent.Add(1) >= ParallelCalls {
					ofAccount.CompareAndSwap(nil, &err)
				}
				return nil
			})
		}
	}
	_ = work.Wait() // Each machine keeps its own error.
	errs := make([]error, len(clusters))
	for i, ids := range clusters {
		errs[i] = combineErrors(operation, ids, results[i])
	}
	return errs
}

// isOfAccount reports whether every other order would end in the same way. Rights may be given for parts of an account, and a call that
// fails at the cloud may be that of one machine.
func isOfAccount(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	known, ok := errors.AsType[*actuator.Error](err)
	return ok && slices.Contains([]actuator.ErrorClass{actuator.Throttled, actuator.CredentialsInvalid, actuator.CredentialsMissing}, known.Class)
}

// combineErrors returns one error for the machines of a cluster, or nil. The message is the same each time, whatever the order of the
// calls: a condition shows it, and a change is a write.
func combineErrors(operation string, ids []string, results []error) error {
	refused := map[string][]int{}
	var failed []string
	for i, err := range results {
		if err == nil {
			continue
		}
		failed = append(failed, ids[i])
		if machine, ok := errors.AsType[*RefusedError](err); ok {
			refused[machine.Code] = append(refused[machine.Code], i)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	taken := failed
	if len(failed) == len(ids) {
		taken = nil // Nothing was taken, and the port says that by an empty list.
	}
	// What holds for all goes before what holds for one.
	for _, err := range results {
		if _, isOfMachine := errors.AsType[*RefusedError](err); err == nil || isOfMachine {
			continue
		}
		known, ok := errors.AsType[*actuator.Error](err)
		if !ok {
			return err
		}
		return &actuator.Error{Class: known.Class, Message: known.Message, RetryAfter: known.RetryAfter, RefusedIDs: taken}
	}
	var parts []string
	urgent := actuator.WrongState
	for _, code := range slices.Sorted(maps.Keys(refused)) {
		var own []string
		for _, i := range refused[code] {
			own = append(own, ids[i])
		}
		slices.Sort(own)
		first, _ := errors.AsType[*RefusedError](results[slices.MinFunc(refused[code], func(x, y int) int { return cmp.Compare(ids[x], ids[y]) })])
		if urgencyOf(first.Class) > urgencyOf(urgent) {
			urgent = first.Class
		}
		parts = append(parts, fmt.Sprintf("%s for %s: %s", code, joinIDs(own), first.Message))
	}
	return &actuator.Error{Class: urgent, Message: operation + ": " + strings.Join(parts, "; "), RefusedIDs: taken}
}

// IsOfMachine reports whether errors of a class may be refusals of single machines.
func IsOfMachine(c actuator.ErrorClass) bool { return urgencyOf(c) >= 0 }

// urgencyOf orders the classes of refusals of single machines, and is negative for all other classes.
func urgencyOf(c actuator.ErrorClass) int {
	// A wrong state comes last because it passes by itself.
	return slices.Index([]actuator.ErrorClass{actuator.WrongState, actuator.NotFound, actuator.Other, actuator.NoCapacity}, c)
}

// joinIDs names the first machines, because a message has to stay readable.
func joinIDs(ids []string) string {
	const shown = 20
	text := strings.Join(ids[:min(shown, len(ids))], ", ")
	if more := len(ids) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
