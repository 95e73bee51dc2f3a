// SPDX-License-Identifier: Apache-2.0

// Package actuatortest is the contract that every actuator has to pass: call Run from a test of the implementation.
package actuatortest

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

// Cloud is one cluster at a cloud for tests, real or simulated.
type Cloud interface {
	// Actuator returns the actuator under test; it may be the same one for many clusters.
	Actuator() actuator.Actuator
	// Target returns the cluster, with credentials that work.
	Target() actuator.Target
	// Create makes n running machines of the cluster and returns their ids. Twelve of them must be more than one page.
	Create(t *testing.T, n int) []string
	// Settle waits until no machine of the cluster is starting or stopping.
	Settle(t *testing.T)
	// Fail lets the operation fail with the class until the test ends: every call, or only calls that name one of ids.
	// It returns false if the cloud cannot do that; the rows that need it are skipped then.
	Fail(t *testing.T, class actuator.Class, op Operation, ids ...string) bool
}

// Operation is a method of an actuator.
type Operation string

// The operations.
const (
	Observe Operation = "observe"
	Stop    Operation = "stop"
	Start   Operation = "start"
)

// Run tests the contract. newCloud returns a new, empty cluster on each call; all of them share one account, and the
// infraID of one should be the beginning of the next one's, to find actuators that match by prefix.
func Run(t *testing.T, newCloud func(t *testing.T) Cloud) {
	for name, row := range map[string]func(*testing.T, func(*testing.T) Cloud){
		"observe finds all machines on more than one page, ordered by id":  findsAllPages,
		"machines of another infraID are invisible":                        othersAreInvisible,
		"a cluster without machines is no error":                           noMachines,
		"an empty infraID is refused":                                      emptyInfraID,
		"an unknown machine is not found and the others are acted on":      unknownMachine,
		"wrong credentials are invalid":                                    wrongCredentials,
		"missing credentials are missing":                                  missingCredentials,
		"every class of error is told, and without the credentials":        classesAreTold,
		"a cancelled context returns promptly with the context's error":    cancelledContext,
		"calls from twenty goroutines are safe":                            manyGoroutines,
		"stop concerns the named machines only":                            stopsNamedOnly,
		"nothing to stop or start is no error":                             nothingToDo,
		"stop is idempotent":                                               stopIsIdempotent,
		"after stop no machine is running or starting":                     staysStopped,
		"a machine that cannot be stopped yet does not hold the others":    stopsPastStarting,
		"start is idempotent":                                              startIsIdempotent,
		"start works on running, stopping and stopped machines at once":    startsMixture,
		"a machine without capacity does not hold the others and is named": startsPastNoCapacity,
	} {
		t.Run(name, func(t *testing.T) { row(t, newCloud) })
	}
}
