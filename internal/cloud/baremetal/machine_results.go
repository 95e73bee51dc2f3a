// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/actuator"
)

// maxNamedMachines is the maximum number of machines that a message lists for one error.
const maxNamedMachines = 20

// messageOf returns the message of one machine's error.
func messageOf(err error) string {
	if known, ok := errors.AsType[*actuator.Error](err); ok {
		return known.Message
	}
	return err.Error()
}

// combineErrors returns one error for machines, or nil. The message does not depend on the order of the responses. A
// condition shows the message, so each change would cause a write.
func combineErrors(operation string, ids []string, errs []error) error {
	named := map[string][]string{}
	combined := &actuator.Error{Class: actuator.WrongState}
	var pause time.Duration
	for i, err := range errs {
		if err == nil {
			continue
		}
		combined.RefusedIDs = append(combined.RefusedIDs, ids[i])
		named[messageOf(err)] = append(named[messageOf(err)], ids[i])
		if class := actuator.ClassOf(err); urgencyOf(class) > urgencyOf(combined.Class) {
			combined.Class = class
		}
		if known, ok := errors.AsType[*actuator.Error](err); ok {
			pause = max(pause, known.RetryAfter)
		}
	}
	if len(named) == 0 {
		return nil
	}
	if len(combined.RefusedIDs) == len(ids) {
		combined.RefusedIDs = nil // RefusedIDs is empty if no order was accepted.
	}
	var parts []string
	for _, message := range slices.Sorted(maps.Keys(named)) {
		machines := slices.Sorted(slices.Values(named[message]))
		text := strings.Join(machines[:min(len(machines), maxNamedMachines)], ", ")
		if more := len(machines) - maxNamedMachines; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, text+": "+message)
	}
	combined.Message, combined.RetryAfter = operation+": "+strings.Join(parts, "; "), pause
	return combined
}

// urgencyOf returns the rank of an error class. A wrong state ranks lowest because it is temporary, and a missing
// Secret key ranks highest because a user must add it.
func urgencyOf(c actuator.ErrorClass) int {
	return slices.Index([]actuator.ErrorClass{
		actuator.WrongState, actuator.NotFound, actuator.Other, actuator.NoCapacity, actuator.Throttled, actuator.Unreachable,
		actuator.PermissionDenied, actuator.CredentialsInvalid, actuator.CredentialsMissing,
	}, c)
}
