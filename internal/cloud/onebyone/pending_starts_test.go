// SPDX-License-Identifier: Apache-2.0

package onebyone

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestAStartIsFollowedForAWhile(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	starts := NewPendingStarts(now)
	starts.Remember("a", "order-1")
	starts.Remember("b", "order-2")
	starts.ForgetMachine("b")
	if a, b := starts.Find("a"), starts.Find("b"); a != "order-1" || b != "" {
		t.Errorf("found %q and %q, want the first order only", a, b)
	}
	now.SetTime(now.Now().Add(longestStart))
	if found := starts.Find("a"); found != "" {
		t.Errorf("found %q after %s, want the next start to be sent", found, longestStart)
	}
}
