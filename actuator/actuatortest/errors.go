// SPDX-License-Identifier: Apache-2.0

package actuatortest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

func allOperations() []Operation { return []Operation{Observe, Stop, Start} }

func wrongCredentialsAreInvalid(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	target := c.Target()
	target.Credentials = map[string][]byte{}
	for key := range c.Target().Credentials {
		target.Credentials[key] = []byte("this-is-wrong-" + key)
	}
	for _, op := range allOperations() {
		expectNoSecrets(t, c.expectError(op, target, actuator.CredentialsInvalid, c.ids...), target)
	}
	c.expectSettled(actuator.Running, nil)
}

func missingCredentialsAreReported(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	target := c.Target()
	for _, none := range []map[string][]byte{nil, {}, {"unrelated": []byte("value")}} {
		target.Credentials = none
		for _, op := range allOperations() {
			_ = c.expectError(op, target, actuator.CredentialsMissing, c.ids...)
		}
	}
	c.expectSettled(actuator.Running, nil)
}

func errorClassesAreReported(t *testing.T, newCloud func(*testing.T) Cloud) {
	classes := []actuator.ErrorClass{
		actuator.CredentialsInvalid, actuator.PermissionDenied, actuator.Unreachable, actuator.Throttled,
		actuator.NoCapacity, actuator.WrongState, actuator.NotFound, actuator.Other,
	}
	reported := 0
	for _, class := range classes {
		for _, op := range allOperations() {
			t.Run(string(op)+" with "+string(class), func(t *testing.T) {
				c := newCluster(t, newCloud, 2)
				if !c.Fail(t, class, op) {
					t.Skip("the test's cloud cannot fail this way")
				}
				reported++
				// The message is shown in a condition, where each change is a write and an event for everybody who watches.
				first := c.expectError(op, c.Target(), class, c.ids...)
				again := c.expectError(op, c.Target(), class, c.ids...)
				expectNoSecrets(t, first, c.Target())
				if first != nil && again != nil && first.Error() != again.Error() {
					t.Errorf("the message changes although the trouble does not:\n%s\n%s", first, again)
				}
			})
		}
	}
	if reported == 0 {
		t.Error("expected the test's cloud to fail with at least one class, found none that Fail can do; an actuator's errors are not proven without")
	}
}

// expectNoSecrets checks that the error holds no value of the credentials.
func expectNoSecrets(t *testing.T, err error, target actuator.Target) {
	t.Helper()
	for key, value := range target.Credentials {
		if err != nil && strings.Contains(err.Error(), string(value)) {
			t.Errorf("the error holds the value of %s: %v", key, err)
		}
	}
}

func cancelledContextReturns(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, op := range allOperations() {
		// An actuator that ignores its context would hang, and with it the test.
		answered := make(chan error, 1)
		go func() { answered <- c.call(ctx, op, c.Target(), c.ids) }()
		waiting, done := context.WithTimeout(t.Context(), callDeadline)
		defer done()
		select {
		case err := <-answered:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s with a cancelled context: %v, want %v", op, err, context.Canceled)
			}
		case <-waiting.Done():
			t.Fatalf("%s with a cancelled context does not return", op)
		}
	}
	c.expectSettled(actuator.Running, nil)
}

func concurrentCallsAreSafe(t *testing.T, newCloud func(*testing.T) Cloud) {
	const callers = 20
	c := newCluster(t, newCloud, 6)
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			if err := c.call(t.Context(), Stop, c.Target(), c.ids); err != nil {
				t.Errorf("stop: %v", err)
			}
			machines, err := c.Actuator().Observe(t.Context(), c.Target())
			if err != nil || len(machines) != len(c.ids) {
				t.Errorf("observe: %d machines and error %v, want %d machines", len(machines), err, len(c.ids))
			}
		})
	}
	work.Wait()
	c.expectSettled(actuator.Stopped, nil)
}
