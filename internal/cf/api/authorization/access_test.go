// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestACallerIsLimitedAloneAndNotForEver(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	c := &Callers{clock: clock, perSecond: 2, limits: map[string]*limit{}, newcomers: rate.NewLimiter(1, 1), metrics: NewMetrics()}
	for i := range 2 * burstSeconds {
		if !c.allow("alice") {
			t.Fatalf("found request %d refused, want five seconds' worth allowed", i)
		}
	}
	if c.allow("alice") {
		t.Error("found one more allowed, want it refused")
	}
	if !c.allow("bob") {
		t.Error("found bob refused for what alice did")
	}
	clock.SetTime(time.Unix(1001, 0))
	if !c.allow("alice") {
		t.Error("found alice refused a second later, want her allowed")
	}
}

func TestMemoryEnds(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	c := &Callers{clock: clock, known: map[fingerprint]*memory{}}
	seen := c.key.of("Bearer x")
	c.remember(seen, &memory{name: "alice", until: clock.Now().Add(remembered)})
	if m := c.recall(seen); m == nil || m.name != "alice" {
		t.Errorf("found %v, want alice", m)
	}
	clock.SetTime(time.Unix(1000, 0).Add(remembered + 1))
	if m := c.recall(seen); m != nil {
		t.Errorf("found %v, want nobody", m)
	}
	if other := (fingerprint{1}); other.of("Bearer x") == seen {
		t.Error("found two processes with one fingerprint, want the key to count")
	}
}

func FuzzCredential(f *testing.F) {
	for _, header := range []string{"", "Bearer x", "bearer  x ", "Bearer", "ClientCert eA==", "ClientCert !", "Basic YTpi", "Digest x", "\x00"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		c, err := parse(header)
		if err == nil && c.token == "" && c.certificate == nil {
			t.Errorf("%q: found nobody let in, want somebody or an error", header)
		}
	})
}
