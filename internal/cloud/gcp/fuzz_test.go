// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"strings"
	"testing"
)

// FuzzReadCredentials reads a service account key from a Secret. An error never quotes the key, and an accepted key
// never refers to another token server.
func FuzzReadCredentials(f *testing.F) {
	const canary = "s3cr3t-canary"
	for _, text := range []string{
		`{"type":"service_account","project_id":"p","client_email":"a@b","private_key":"` + canary + `","token_uri":"https://oauth2.googleapis.com/token"}`,
		`{"type":"external_account","credential_source":{"file":"/etc/passwd"}}`,
		`{"type":"service_account","project_id":"../x","client_email":"a","private_key":"k","token_uri":"https://example.com"}`, `[`, `{"type":1}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		account, err := readCredentials(map[string][]byte{serviceAccountKey: []byte(text)})
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("expected an error without the content of the Secret, found %v", err)
		}
		if err == nil && (strings.ContainsAny(account.ProjectID, "/?#%") || !strings.Contains(account.TokenURI+"google", "google")) {
			t.Errorf("expected a project and a server of Google, found %+v", account)
		}
	})
}

// FuzzParseMachineName parses the ID of a machine. The parts of the ID become a path.
func FuzzParseMachineName(f *testing.F) {
	for _, id := range []string{"projects/p/zones/z/instances/i", "z/i", "z/../i", "//", ""} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		name, ok := parseMachineName(id)
		if again, isAgain := parseMachineName(id); ok != isAgain || name != again {
			t.Errorf("%q: expected the same answer twice, found %+v and %+v", id, name, again)
		}
	})
}
