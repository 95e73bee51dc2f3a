// SPDX-License-Identifier: Apache-2.0

package actuatortest

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
)

// Fault makes calls of an operation fail in a simulated cloud.
type Fault struct {
	// Operation is the name of the operation in the cloud's API.
	Operation string
	// IDs are the machines whose calls fail. If empty, all calls fail.
	IDs []string
	// Status is the HTTP status of the response, and Code the cloud's error code.
	Status        int
	Code, Message string
	// RetryAfter is the value of the Retry-After header. If empty, the header is not set.
	RetryAfter string
	// IsLater makes the cloud accept the request and fail the operation later.
	IsLater bool
}

// Faults is embedded by a simulated cloud. It holds the faults, the number of calls, and the lock that guards all
// state of the cloud. The zero value has no faults.
type Faults struct {
	sync.Mutex

	injected []Fault
	calls    map[string]int
}

// Change calls do with the lock held.
func (f *Faults) Change(do func()) {
	f.Lock()
	defer f.Unlock()
	do()
}

// Inject adds a fault, and removes all faults when the test ends.
func (f *Faults) Inject(t *testing.T, fault Fault) {
	t.Helper()
	f.Change(func() { f.injected = append(f.injected, fault) })
	t.Cleanup(func() { f.Change(func() { f.injected = nil }) })
}

// CountCalls returns the number of calls of each operation since the previous CountCalls.
func (f *Faults) CountCalls() map[string]int {
	f.Lock()
	defer f.Unlock()
	counted := f.calls
	f.calls = nil
	return counted
}

// FindFault returns the fault that applies to a call of the operation for the machine with this ID. An empty id means
// that the call is for no particular machine. The caller must hold the lock.
func (f *Faults) FindFault(operation, id string) (Fault, bool) {
	for _, fault := range f.injected {
		if fault.Operation == operation && (len(fault.IDs) == 0 || slices.Contains(fault.IDs, id)) {
			return fault, true
		}
	}
	return Fault{}, false
}

// CountCall counts a call of an operation, and returns the number of its calls since the last CountCalls. The caller
// must hold the lock.
func (f *Faults) CountCall(operation string) int {
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[operation]++
	return f.calls[operation]
}

// FaultyCloud is a Cloud that embeds Faults.
type FaultyCloud interface {
	Cloud
	Inject(t *testing.T, fault Fault)
	CountCalls() map[string]int
}

// FaultEffect describes the expected effect of a fault on an operation.
type FaultEffect struct {
	// Class and RetryAfter are the expected fields of the returned error.
	Class      actuator.ErrorClass
	RetryAfter time.Duration
	// Calls is the expected number of calls of the fault's operation.
	Calls int
}

// ExpectEffect injects a fault, calls an operation for three machines, and checks the effect.
func ExpectEffect(t *testing.T, cloud FaultyCloud, op Operation, fault Fault, want FaultEffect) {
	t.Helper()
	ids := cloud.Create(t, 3)
	cloud.Inject(t, fault)
	err := testCluster{Cloud: cloud, t: t}.call(t.Context(), op, cloud.Target(), ids)
	found, _ := errors.AsType[*actuator.Error](err)
	if found == nil || found.Class != want.Class || found.RetryAfter != want.RetryAfter {
		t.Errorf("found %#v, want class %q and a pause of %s", err, want.Class, want.RetryAfter)
	}
	if got := cloud.CountCalls()[fault.Operation]; got != want.Calls {
		t.Errorf("%s was called %d times, want %d", fault.Operation, got, want.Calls)
	}
}

// ExpectCalls observes and stops three clusters of one account, with four machines each, and checks the number of
// calls.
func ExpectCalls(t *testing.T, clouds [3]FaultyCloud, want map[string]int) {
	t.Helper()
	batch, ok := clouds[0].Actuator().(actuator.BatchActuator)
	if !ok {
		t.Fatalf("%T does not implement actuator.BatchActuator", clouds[0].Actuator())
	}
	var infraIDs []string
	var ids [][]string
	for _, cloud := range clouds {
		infraIDs, ids = append(infraIDs, cloud.Target().InfraID), append(ids, cloud.Create(t, 4))
	}
	if _, err := batch.ObserveAll(t.Context(), clouds[0].Target(), infraIDs); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(batch.StopAll(t.Context(), clouds[0].Target(), ids)...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, clouds[0].CountCalls()); diff != "" {
		t.Errorf("calls for three clusters of four machines (-want +got):\n%s", diff)
	}
}
