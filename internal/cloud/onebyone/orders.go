// SPDX-License-Identifier: Apache-2.0

// Package onebyone stops and starts machines of clusters in clouds that accept orders only for single machines.
package onebyone

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

// ParallelCalls is the maximum number of concurrent calls of one operation. Each machine needs one call, and a stop may
// concern thousands of machines.
const ParallelCalls = 16

// RefusedError is a refusal by the cloud that concerns one machine.
type RefusedError struct {
	// Class is one of WrongState, NotFound, Other and NoCapacity.
	Class actuator.ErrorClass
	// Code is the cloud's name for the error. In the error of a cluster, machines with the same code and class share
	// the message of the first machine by ID.
	Code, Message string
}

// Error implements error.
func (r *RefusedError) Error() string { return r.Code + ": " + r.Message }

// Run calls order for each machine of the clusters, by its ID. It returns an error for each cluster, as
// actuator.BatchActuator requires. order returns a *RefusedError for a refusal that concerns one machine. Run makes no
// more calls after an error that concerns the whole account, or after ParallelCalls calls without a response.
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

// isOfAccount reports whether every other order would fail in the same way. Missing rights do not count, because rights
// may be granted for parts of an account. Nor does Unreachable count, because it may concern one machine.
func isOfAccount(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	known, ok := errors.AsType[*actuator.Error](err)
	return ok && slices.Contains([]actuator.ErrorClass{actuator.Throttled, actuator.CredentialsInvalid, actuator.CredentialsMissing}, known.Class)
}

// combineErrors returns one error for the machines of a cluster, or nil. The message does not depend on the order of
// the calls. A condition shows the message, so each change would cause a write.
func combineErrors(operation string, ids []string, results []error) error {
	type refusal struct {
		code  string
		class actuator.ErrorClass
	}
	refused := map[refusal][]int{} // The same code may be used for temporary and for permanent refusals.
	var failed []string
	for i, err := range results {
		if err == nil {
			continue
		}
		failed = append(failed, ids[i])
		if machine, ok := errors.AsType[*RefusedError](err); ok {
			kind := refusal{machine.Code, machine.Class}
			refused[kind] = append(refused[kind], i)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	taken := failed
	if len(failed) == len(ids) {
		taken = nil // RefusedIDs is empty if no order was accepted.
	}
	// Any other error takes precedence over refusals of single machines.
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
	order := func(x, y refusal) int { return cmp.Or(cmp.Compare(x.code, y.code), cmp.Compare(x.class, y.class)) }
	for _, kind := range slices.SortedFunc(maps.Keys(refused), order) {
		var own []string
		for _, i := range refused[kind] {
			own = append(own, ids[i])
		}
		slices.Sort(own)
		first, _ := errors.AsType[*RefusedError](results[slices.MinFunc(refused[kind], func(x, y int) int { return cmp.Compare(ids[x], ids[y]) })])
		if urgencyOf(first.Class) > urgencyOf(urgent) {
			urgent = first.Class
		}
		parts = append(parts, fmt.Sprintf("%s for %s: %s", kind.code, JoinIDs(own), first.Message))
	}
	return &actuator.Error{Class: urgent, Message: operation + ": " + strings.Join(parts, "; "), RefusedIDs: taken}
}

// IsOfMachine reports whether errors of a class may be refusals of single machines.
func IsOfMachine(c actuator.ErrorClass) bool { return urgencyOf(c) >= 0 }

// urgencyOf returns the rank of an error class that can concern single machines, and -1 for all other classes.
func urgencyOf(c actuator.ErrorClass) int {
	// A wrong state ranks last because it is temporary.
	return slices.Index([]actuator.ErrorClass{actuator.WrongState, actuator.NotFound, actuator.Other, actuator.NoCapacity}, c)
}

// JoinIDs lists the first machines and counts the rest, to keep the message readable.
func JoinIDs(ids []string) string {
	const shown = 20
	text := strings.Join(ids[:min(shown, len(ids))], ", ")
	if more := len(ids) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
