// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

const (
	honestAddress, hostileAddress = "192.0.2.1:1000", "198.51.100.7:1000"
	// failureRate is the default limit of cf-api.
	failureRate = 10
)

// reviewedCallers is an Authenticator with a fake API server, which accepts every token that does not begin with "bad".
type reviewedCallers struct {
	*Authenticator
	clock *clocktesting.FakePassiveClock
	asked atomic.Int64
}

func newReviewedCallers(t *testing.T) *reviewedCallers {
	t.Helper()
	c := &reviewedCallers{clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0))}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case strings.HasPrefix(token, "bad"):
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)
		default:
			_, _ = fmt.Fprintf(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":%q}}}`, token)
		}
	}))
	t.Cleanup(server.Close)
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), authenticationv1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	var err error
	c.Authenticator, err = NewAuthenticator(Options{
		Config: &rest.Config{Host: server.URL}, Scheme: known, Clock: c.clock, RequestsPerSecond: 50, FailuresPerSecond: failureRate, Metrics: NewCallerMetrics(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// show authenticates a token and returns the resulting HTTP status.
func (c *reviewedCallers) show(t *testing.T, token, remote string) int {
	t.Helper()
	caller, err := c.Authenticate(t.Context(), "Bearer "+token, remote)
	var known *apierrors.CFError
	switch {
	case err == nil:
		caller.Close()
		return http.StatusOK
	case errors.As(err, &known):
		return known.Status
	default:
		t.Fatal(err)
		return 0
	}
}

// TestHonestCallersAreServedDuringAttacks sends requests for a period of the fake clock in which every cached response
// expires twice.
func TestHonestCallersAreServedDuringAttacks(t *testing.T) {
	for name, test := range map[string]struct {
		honest, hostilePerSecond int
		hostileFrom              func(i int) string
		newcomersFrom            string
	}{
		"three thousand honest callers, each with one request per second: all are served":                {honest: 3000},
		"five hundred bad tokens per second from another address: honest callers are served":             {20, 500, func(int) string { return hostileAddress }, honestAddress},
		"five hundred bad tokens per second from the honest callers' address: honest callers are served": {20, 500, func(int) string { return honestAddress }, ""},
		"five hundred bad tokens per second from random addresses: honest callers are served":            {20, 500, func(i int) string { return fmt.Sprintf("10.%d.%d.%d:1", i>>16&255, i>>8&255, i&255) }, honestAddress},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const seconds, parts = 25, 10
			c := newReviewedCallers(t)
			refused, sent, failed, bad := 0, 0, 0, 0
			honest := func(user, remote string) {
				if sent++; c.show(t, user, remote) != http.StatusOK {
					refused++
				}
			}
			for part := range seconds * parts {
				c.clock.SetTime(time.Unix(1000, 0).Add(time.Duration(part) * time.Second / parts))
				for i := part % parts; i < test.honest; i += parts {
					honest(fmt.Sprintf("user-%d", i), honestAddress)
				}
				if test.newcomersFrom != "" {
					honest(fmt.Sprintf("job-%d", part), test.newcomersFrom)
				}
				for range test.hostilePerSecond / parts {
					bad++
					if c.show(t, fmt.Sprintf("bad-%d", bad), test.hostileFrom(bad)) == http.StatusUnauthorized {
						failed++
					}
				}
			}
			t.Logf("%d of %d honest requests refused; %d of %d bad tokens reached the API server", refused, sent, failed, bad)
			if refused > 0 {
				t.Errorf("found %d of %d honest requests refused, want none", refused, sent)
			}
			if limit := failuresOfAllBurst + seconds*failuresOfAll; failed > limit {
				t.Errorf("found the API server asked about %d bad tokens, want at most %d", failed, limit)
			}
		})
	}
}

func TestCredentialsAreReviewedAgain(t *testing.T) {
	c := newReviewedCallers(t)
	expect := func(what string, status int, token string, asked int64) {
		t.Helper()
		before := c.asked.Load()
		if found := c.show(t, token, honestAddress); found != status || c.asked.Load()-before != asked {
			t.Errorf("%s: found %d after %d questions, want %d after %d", what, found, c.asked.Load()-before, status, asked)
		}
	}
	expect("a new token", http.StatusOK, "alice", 1)
	expect("a cached token", http.StatusOK, "alice", 0)
	expect("a bad token", http.StatusUnauthorized, "bad", 1)
	expect("a bad token a moment later", http.StatusUnauthorized, "bad", 0)
	c.clock.SetTime(c.clock.Now().Add(answerTTL + 1))
	expect("a cached token whose answer has expired", http.StatusOK, "alice", 1)
	expect("a bad token whose answer has expired", http.StatusUnauthorized, "bad", 1)
	caller, err := c.Authenticate(t.Context(), "bearer   alice", honestAddress)
	if err != nil || c.asked.Load() != 4 {
		t.Fatalf("found %v after %d reviews, want the other spelling of the scheme to be cached", err, c.asked.Load())
	}
	caller.Close()
	if other := (credentialFingerprint{1}); other.hash("Bearer x") == c.key.hash("Bearer x") {
		t.Error("found two processes with one fingerprint, want the key to count")
	}
}

func TestSourceIsAnAddressOrANetwork(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1/32", "[::ffff:192.0.2.1]:1": "192.0.2.1/32", "[2001:db8::1]:1": "2001:db8::/64", "[fe80::1%eth0]:1": "fe80::/64", "nowhere": "invalid Prefix",
	} {
		if got := sourceKey(remote).String(); got != want {
			t.Errorf("%s: found %s, want %s", remote, got, want)
		}
	}
}

func TestCallerIsLimitedAloneAndNotForEver(t *testing.T) {
	limits, now := newCallerLimits(2), time.Unix(1000, 0)
	for i := range 2 * burstSeconds {
		if !limits.allow("alice", now) {
			t.Fatalf("found request %d refused, want the requests of five seconds allowed", i)
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

// TestLargeKeysAreRefusedUnread uses RSA keys whose factors are not prime, because valid keys of this size take minutes
// to generate.
func TestLargeKeysAreRefusedUnread(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	for bits, says := range map[uint]string{8192: "expected a certificate and its key in PEM", 16384: "of at most 8192 bits", 49152: "of at most 16 KiB"} {
		odd := func(bits uint) *big.Int {
			return new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), bits), big.NewInt(1))
		}
		large := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: odd(bits), E: 65537}, D: odd(bits), Primes: []*big.Int{odd(bits / 2), odd(bits / 2)}}
		large.Precomputed = rsa.PrecomputedValues{Dp: odd(bits / 2), Dq: odd(bits / 2), Qinv: odd(bits / 2)}
		text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(large)})
		begin := time.Now()
		cred, err := parseHeader("ClientCert " + base64.StdEncoding.EncodeToString(append(certificate, text...)))
		if err == nil {
			_, err = cred.parseCertificates()
		}
		t.Logf("%d bits: refused after %s", bits, time.Since(begin))
		if !apierrors.HasStatus(err, http.StatusUnauthorized) || !strings.Contains(err.Error(), says) {
			t.Errorf("%d bits: found %v, want %q", bits, err, says)
		}
	}
}

func FuzzCredential(f *testing.F) {
	for _, header := range []string{"", "Bearer x", "bearer  x ", "Bearer", "ClientCert eA==", "ClientCert !", "Basic YTpi", "Digest x", "\x00"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		c, err := parseHeader(header)
		if err != nil {
			return
		}
		certificates, err := c.parseCertificates()
		if err == nil && len(certificates) == 0 && (c.scheme != bearerScheme || c.value == "") {
			t.Errorf("%q: found no caller and no error, want one of them", header)
		}
	})
}
