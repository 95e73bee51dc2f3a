// SPDX-License-Identifier: Apache-2.0

package condition

import "context"

// FollowSignal reports the values of the channel until it is closed or ctx ends.
func FollowSignal(ctx context.Context, signal <-chan bool, report func(Status)) {
	report(Status{State: Unknown, Reason: "NoSignal", Message: "nothing has been signalled yet"})
	for {
		select {
		case on, open := <-signal:
			if !open {
				return
			}
			report(Status{State: stateFromBool(on), Reason: "Signal" + stateFromBool(on).String()})
		case <-ctx.Done():
			return
		}
	}
}
