// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"strings"
	"testing"
)

// FuzzReadCredentials reads clouds.yaml from a Secret. An error never quotes the file, and accepted settings contain
// a server.
func FuzzReadCredentials(f *testing.F) {
	const canary = "s3cr3t-canary"
	for _, text := range []string{
		"clouds:\n  openstack:\n    auth: {auth_url: 'https://keystone:5000/v3', username: u, password: " + canary + ", project_id: p}\n",
		"clouds: {openstack: {auth: {auth_url: 'http://u:" + canary + "@h', application_credential_id: a}}}",
		"clouds: [" + canary + "]", "clouds: &a {openstack: *a}", "\t" + canary, "{",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := readCredentials(map[string][]byte{cloudsKey: []byte(text)}, "openstack")
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("expected an error without the content of the Secret, found %v", err)
		}
		if err == nil && !strings.HasPrefix(strings.ToLower(settings.Auth.AuthURL), "http") {
			t.Errorf("expected the address of a server, found %q", settings.Auth.AuthURL)
		}
	})
}
