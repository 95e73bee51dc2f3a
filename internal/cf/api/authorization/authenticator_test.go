// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestCallerIsLimitedAloneAndNotForEver(t *testing.T) {
	limits, now := newCallerLimits(2), time.Unix(1000, 0)
	for i := range 2 * burstSeconds {
		if !limits.allow("alice", now) {
			t.Fatalf("found request %d refused, want five seconds' worth allowed", i)
		}
	}
	if limits.allow("alice", now) {
		t.Error("found one more allowed, want it refused")
	}
	if !limits.allow("bob", now) {
		t.Error("found bob refused for what alice did")
	}
	if !limits.allow("alice", now.Add(time.Second)) {
		t.Error("found alice refused a second later, want her allowed")
	}
}

func TestIdentityExpires(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	a, err := NewAuthenticator(Options{Config: &rest.Config{}, Clock: clock, Metrics: NewCallerMetrics()})
	if err != nil {
		t.Fatal(err)
	}
	seen := a.key.hash("Bearer x")
	alice := &callerIdentity{name: "alice"}
	a.identities.Add(seen, alice, answerTTL)
	if known, _ := a.identities.Get(seen); known != alice {
		t.Errorf("found %v, want alice", known)
	}
	clock.SetTime(time.Unix(1000, 0).Add(answerTTL + 1))
	if known, ok := a.identities.Get(seen); ok {
		t.Errorf("found %v, want nobody", known)
	}
	if other := (credentialFingerprint{1}); other.hash("Bearer x") == seen {
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
