// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"context"
	"sync"
)

// ObserveCombined observes all children at once and reports the judgement after each of their reports. It returns after the
// last child has: when ctx ended, or when nothing can change any more.
func ObserveCombined(ctx context.Context, children []Child, judge JudgeFunc, report func(Status)) {
	var mu sync.Mutex
	inputs := make([]ChildInput, len(children))
	for i, c := range children {
		inputs[i] = ChildInput{Name: c.Name, Now: Status{Reason: "NotReported", Message: "it has not reported yet"}}
	}
	var running sync.WaitGroup
	for i, c := range children {
		running.Go(func() {
			c.ObserveWithBackoff(ctx, DefaultBackoff(), func(s Status) {
				mu.Lock()
				defer mu.Unlock() // Held during the report: without it an older judgement could arrive after a newer one.
				inputs[i].noteReport(s)
				report(judge(inputs))
			})
		})
	}
	running.Wait()
}
