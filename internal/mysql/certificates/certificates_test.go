// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"testing"
	"time"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestRenewFiles simulates the renewals of one cluster's files over eleven years.
func TestRenewFiles(t *testing.T) {
	born := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hosts := []string{"*.moco-test.db.svc", "127.0.0.1"}
	files := map[string][]byte{}
	for _, step := range []struct {
		name    string
		after   time.Duration
		hosts   []string
		damage  string
		changes []string
	}{
		{"new cluster: all files are created", 0, hosts, "", []string{AuthorityFile, AuthorityKey, CertificateFile, KeyFile}},
		{"certificate one day old: nothing is renewed", 24 * time.Hour, hosts, "", nil},
		{"certificate before two thirds of its lifetime: nothing is renewed", 59 * 24 * time.Hour, hosts, "", nil},
		{"certificate after two thirds of its lifetime: the certificate is renewed", 61 * 24 * time.Hour, hosts, "", []string{CertificateFile, KeyFile}},
		{"additional host name: the certificate is renewed", 62 * 24 * time.Hour, append(hosts, "more.db.svc"), "", []string{CertificateFile, KeyFile}},
		{"missing certificate key: the certificate is renewed", 63 * 24 * time.Hour, hosts, KeyFile, []string{CertificateFile, KeyFile}},
		{"CA just before its last year: only the certificate is renewed", 9*authorityOverlap - 24*time.Hour, hosts, "", []string{CertificateFile, KeyFile}},
		{"CA in its last year: the CA is renewed first", 9*authorityOverlap + time.Hour, hosts, "", []string{AuthorityFile, AuthorityKey}},
		{"certificate after the renewal of its CA: the certificate is renewed", 9*authorityOverlap + 61*24*time.Hour, hosts, "", []string{CertificateFile, KeyFile}},
		{"missing CA key: the CA is renewed", 9*authorityOverlap + 62*24*time.Hour, hosts, AuthorityKey, []string{AuthorityFile, AuthorityKey}},
		{"missing CA: all files are renewed", 9*authorityOverlap + 63*24*time.Hour, hosts, AuthorityFile, []string{AuthorityFile, AuthorityKey, CertificateFile, KeyFile}},
	} {
		now, before := born.Add(step.after), maps.Clone(files)
		delete(before, step.damage)
		after, changed, err := RenewFiles(before, step.hosts, now)
		testenv.ExpectNoError(t, err)
		var found []string
		for _, name := range slices.Sorted(maps.Keys(after)) {
			if string(after[name]) != string(files[name]) {
				found = append(found, name)
			}
		}
		if !slices.Equal(found, step.changes) || changed != (len(step.changes) > 0) {
			t.Fatalf("%s: expected changes to %v, found %v (%v)", step.name, step.changes, found, changed)
		}
		expectTrusted(t, step.name, after[AuthorityFile], after[CertificateFile], now)
		if len(files) > 0 && step.damage != AuthorityFile { // A server with the previous files must trust a server with the new ones.
			expectTrusted(t, step.name+", by an older Pod", files[AuthorityFile], after[CertificateFile], now)
		}
		files = after
	}
}

func expectTrusted(t *testing.T, when string, authorities, certificate []byte, now time.Time) {
	t.Helper()
	block, _ := pem.Decode(certificate)
	leaf, err := x509.ParseCertificate(block.Bytes)
	testenv.ExpectNoError(t, err)
	config, err := BuildClientConfig(authorities, "moco-test-2.moco-test.db.svc")
	testenv.ExpectNoError(t, err)
	for _, host := range []string{config.ServerName, "127.0.0.1"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: config.RootCAs, DNSName: host, CurrentTime: now}); err != nil {
			t.Errorf("%s: expected a certificate for %s, found: %v", when, host, err)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: config.RootCAs, DNSName: "moco-other-0.moco-other.db.svc", CurrentTime: now}); err == nil {
		t.Errorf("%s: expected no certificate for another cluster's instance", when)
	}
}
