// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"context"
	"sync"
)

// Combine observes all children at once and reports the judgement after each of their reports. It returns after the
// last child has: when ctx ended, or when nothing can change any more.
func Combine(ctx context.Context, children []Child, judge Judge, report func(Status)) {
	var mu sync.Mutex
	inputs := make([]Input, len(children))
	for i, c := range children {
		inputs[i] = Input{Name: c.Name, Now: Status{Reason: "NotReported", Message: "it has not reported yet"}}
	}
	var running sync.WaitGroup
	for i, c := range children {
		running.Go(func() {
			c.Keep(ctx, Backoff(), func(s Status) {
				mu.Lock()
				defer mu.Unlock() // Held while reporting, so that judgements arrive in their order.
				inputs[i].take(s)
				report(judge(inputs))
			})
		})
	}
	running.Wait()
}
