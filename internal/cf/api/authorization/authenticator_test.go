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
	c := &Authenticator{clock: clock, perSecond: 2, limits: map[string]*limit{}, newCredentials: rate.NewLimiter(1, 1), metrics: NewMetrics()}
	for i := range 2 * burstSeconds {
		if !c.isWithinRate("alice") {
			t.Fatalf("found request %d refused, want five seconds' worth allowed", i)
		}
	}
	if c.isWithinRate("alice") {
		t.Error("found one more allowed, want it refused")
	}
	if !c.isWithinRate("bob") {
		t.Error("found bob refused for what alice did")
	}
	clock.SetTime(time.Unix(1001, 0))
	if !c.isWithinRate("alice") {
		t.Error("found alice refused a second later, want her allowed")
	}
}

func TestMemoryEnds(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	c := &Authenticator{clock: clock, identities: map[fingerprint]*identity{}}
	seen := c.key.hash("Bearer x")
	c.rememberIdentity(seen, &identity{name: "alice", until: clock.Now().Add(answerTTL)})
	if m := c.findIdentity(seen); m == nil || m.name != "alice" {
		t.Errorf("found %v, want alice", m)
	}
	clock.SetTime(time.Unix(1000, 0).Add(answerTTL + 1))
	if m := c.findIdentity(seen); m != nil {
		t.Errorf("found %v, want nobody", m)
	}
	if other := (fingerprint{1}); other.hash("Bearer x") == seen {
		t.Error("found two processes with one fingerprint, want the key to count")
	}
}

func FuzzCredential(f *testing.F) {
	for _, header := range []string{"", "Bearer x", "bearer  x ", "Bearer", "ClientCert eA==", "ClientCert !", "Basic YTpi", "Digest x", "\x00"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		c, err := parseHeader(header)
		if err == nil && c.token == "" && c.certificate == nil {
			t.Errorf("%q: found nobody let in, want somebody or an error", header)
		}
	})
}
