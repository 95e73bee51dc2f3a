// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"testing"
	"time"
)

// FuzzRenewFiles renews the certificates of a Secret that a user may have written. The result must be valid: renewing
// it again changes nothing.
func FuzzRenewFiles(f *testing.F) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	hosts := []string{"*.moco-db.team.svc", "127.0.0.1"}
	good, _, err := RenewFiles(nil, hosts, now)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[AuthorityFile], good[AuthorityKey], good[CertificateFile], good[KeyFile])
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte(nil), good[CertificateFile], []byte("x"))
	f.Fuzz(func(t *testing.T, authority, authorityKey, certificate, key []byte) {
		files := map[string][]byte{AuthorityFile: authority, AuthorityKey: authorityKey, CertificateFile: certificate, KeyFile: key}
		renewed, _, err := RenewFiles(files, hosts, now)
		if err != nil {
			t.Fatalf("expected certificates in place of unreadable ones, found %v", err)
		}
		if _, changed, err := RenewFiles(renewed, hosts, now); changed || err != nil {
			t.Errorf("expected renewed certificates to stay, found a change: %t (%v)", changed, err)
		}
	})
}
