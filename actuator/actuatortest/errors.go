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

func operations() []Operation { return []Operation{Observe, Stop, Start} }

func wrongCredentials(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	target := c.Target()
	target.Credentials = map[string][]byte{}
	for key := range c.Target().Credentials {
		target.Credentials[key] = []byte("this-is-wrong-" + key)
	}
	for _, op := range operations() {
		keepsSecrets(t, c.fails(op, target, actuator.CredentialsInvalid, c.ids...), target)
	}
	c.settled(actuator.Running, nil)
}

func missingCredentials(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	target := c.Target()
	for _, none := range []map[string][]byte{nil, {}, {"unrelated": []byte("value")}} {
		target.Credentials = none
		for _, op := range operations() {
			_ = c.fails(op, target, actuator.CredentialsMissing, c.ids...)
		}
	}
	c.settled(actuator.Running, nil)
}

func classesAreTold(t *testing.T, newCloud func(*testing.T) Cloud) {
	classes := []actuator.Class{
		actuator.CredentialsInvalid, actuator.PermissionDenied, actuator.Unreachable, actuator.Throttled,
		actuator.NoCapacity, actuator.WrongState, actuator.NotFound, actuator.Other,
	}
	told := 0
	for _, class := range classes {
		for _, op := range operations() {
			t.Run(string(op)+" with "+string(class), func(t *testing.T) {
				c := newCluster(t, newCloud, 2)
				if !c.Fail(t, class, op) {
					t.Skip("the test's cloud cannot fail this way")
				}
				told++
				first := c.fails(op, c.Target(), class, c.ids...)
				again := c.fails(op, c.Target(), class, c.ids...)
				keepsSecrets(t, first, c.Target())
				if first != nil && again != nil && first.Error() != again.Error() {
					t.Errorf("the message changes although the trouble does not:\n%s\n%s", first, again)
				}
			})
		}
	}
	if told == 0 {
		t.Skip("the test's cloud cannot fail on demand")
	}
}

// keepsSecrets checks that the error holds no value of the credentials.
func keepsSecrets(t *testing.T, err error, target actuator.Target) {
	t.Helper()
	for key, value := range target.Credentials {
		if err != nil && strings.Contains(err.Error(), string(value)) {
			t.Errorf("the error holds the value of %s: %v", key, err)
		}
	}
}

func cancelledContext(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, op := range operations() {
		answered := make(chan error, 1)
		go func() { answered <- c.do(ctx, op, c.Target(), c.ids) }()
		waiting, done := context.WithTimeout(t.Context(), patience)
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
	c.settled(actuator.Running, nil)
}

func manyGoroutines(t *testing.T, newCloud func(*testing.T) Cloud) {
	const callers = 20
	c := newCluster(t, newCloud, 6)
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			if err := c.do(t.Context(), Stop, c.Target(), c.ids); err != nil {
				t.Errorf("stop: %v", err)
			}
			machines, err := c.Actuator().Observe(t.Context(), c.Target())
			if err != nil || len(machines) != len(c.ids) {
				t.Errorf("observe: %d machines and error %v, want %d machines", len(machines), err, len(c.ids))
			}
		})
	}
	work.Wait()
	c.settled(actuator.Stopped, nil)
}
