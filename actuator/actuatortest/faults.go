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

// Fault is trouble that a simulated cloud makes with the calls of an operation.
type Fault struct {
	// Operation is the cloud's own name of it.
	Operation string
	// IDs are the machines whose calls fail; none stands for all calls.
	IDs []string
	// Status is the answer's, and Code the cloud's own name of the trouble.
	Status        int
	Code, Message string
	// RetryAfter is the header that asks for a pause; empty for none.
	RetryAfter string
	// IsLater lets an order be taken, and fail then.
	IsLater bool
}

// Faults is embedded by a simulated cloud: what fails there, how often it was called, and the lock of all that the cloud knows. The zero
// Faults fails nothing.
type Faults struct {
	sync.Mutex

	injected []Fault
	calls    map[string]int
}

// Change does something to the cloud with its lock.
func (f *Faults) Change(do func()) {
	f.Lock()
	defer f.Unlock()
	do()
}

// Inject lets a fault happen until the test ends.
func (f *Faults) Inject(t *testing.T, fault Fault) {
	t.Helper()
	f.Change(func() { f.injected = append(f.injected, fault) })
	t.Cleanup(func() { f.Change(func() { f.injected = nil }) })
}

// CountCalls returns how often each operation was called since it was asked last.
func (f *Faults) CountCalls() map[string]int {
	f.Lock()
	defer f.Unlock()
	counted := f.calls
	f.calls = nil
	return counted
}

// FindFault returns what happens to a call of an operation, which may be about a machine. The caller holds the lock.
func (f *Faults) FindFault(operation, id string) (Fault, bool) {
	for _, fault := range f.injected {
		if fault.Operation == operation && (len(fault.IDs) == 0 || slices.Contains(fault.IDs, id)) {
			return fault, true
		}
	}
	return Fault{}, false
}

// CountCall counts a call of an operation, and returns how many there were. The caller holds the lock.
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

// FaultEffect is what an operation makes of a fault.
type FaultEffect struct {
	// Class and RetryAfter are those of its error.
	Class      actuator.ErrorClass
	RetryAfter time.Duration
	// Calls is how often the cloud is called where the fault is.
	Calls int
}

// ExpectEffect has an operation for three machines meet a fault.
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

// ExpectCalls looks at three clusters of one account, with four machines each, and stops them, and checks how often the cloud was called.
func ExpectCalls(t *testing.T, clouds [3]FaultyCloud, want map[string]int) {
	t.Helper()
	batch, ok := clouds[0].Actuator().(actuator.BatchActuator)
	if !ok {
		t.Fatalf("%T is no actuator.BatchActuator", clouds[0].Actuator())
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
