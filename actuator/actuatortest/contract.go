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
	Fail(t *testing.T, class actuator.ErrorClass, op Operation, ids ...string) bool
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
		"observe finds all machines on more than one page, ordered by id":  observeFindsAllPages,
		"machines of another infraID are invisible":                        otherClustersAreInvisible,
		"a cluster without machines is no error":                           emptyClusterIsNoError,
		"an empty infraID is refused":                                      emptyInfraIDIsRefused,
		"an unknown machine is not found and the others are acted on":      unknownMachineIsNotFound,
		"wrong credentials are invalid":                                    wrongCredentialsAreInvalid,
		"missing credentials are missing":                                  missingCredentialsAreReported,
		"every class of error is reported, and without the credentials":    errorClassesAreReported,
		"a cancelled context returns promptly with the context's error":    cancelledContextReturns,
		"calls from twenty goroutines are safe":                            concurrentCallsAreSafe,
		"stop concerns the named machines only":                            stopsNamedMachinesOnly,
		"nothing to stop or start is no error":                             emptyListIsNoError,
		"stop is idempotent":                                               stopIsIdempotent,
		"after stop no machine is running or starting":                     stoppedMachinesStayStopped,
		"a machine that cannot be stopped yet does not hold the others":    stopsDespiteStartingMachine,
		"start is idempotent":                                              startIsIdempotent,
		"start works on running, stopping and stopped machines at once":    startsMixedStates,
		"a machine without capacity does not hold the others and is named": startsDespiteNoCapacity,
	} {
		t.Run(name, func(t *testing.T) { row(t, newCloud) })
	}
}
