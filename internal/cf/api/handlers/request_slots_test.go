// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestManyRequestsDelayOnlyTheirCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots, nothing := NewRequestSlots(2, 1), func() error { return nil }
		release, err := slots.acquire(t.Context(), "mallory", nothing)
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := slots.acquire(short, "mallory", nothing); err == nil {
			t.Error("found a second slot for mallory, want a wait until the timeout")
		}
		releaseAlice, err := slots.acquire(t.Context(), "alice", nothing)
		if err != nil {
			t.Errorf("found alice refused because of mallory's requests: %v", err)
		}
		served := make(chan string, 1)
		go func() {
			if releaseBob, err := slots.acquire(t.Context(), "bob", nothing); err == nil {
				releaseBob()
				served <- "bob"
			}
		}()
		synctest.Wait()
		if len(served) > 0 {
			t.Error("found a third slot of two")
		}
		release()
		if name := <-served; name != "bob" {
			t.Errorf("found %s served", name)
		}
		releaseAlice()
		if len(slots.callers) != 0 {
			t.Errorf("found %d callers remembered, want none", len(slots.callers))
		}
	})
}

func TestSlotIsHeldUntilTheAnswerIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := NewRequestSlots(1, 1)
		request, sent := context.WithCancel(t.Context())
		if err := slots.holdSlot(request, "mallory"); err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- slots.holdSlot(t.Context(), "alice") }()
		synctest.Wait()
		if len(served) > 0 {
			t.Error("found a slot while the response to another request is being sent")
		}
		sent()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
