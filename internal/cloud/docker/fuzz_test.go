// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"strings"
	"testing"
)

// FuzzReadContainers reads listings from a hostile engine. Only containers with a valid ID are used, because IDs
// become parts of paths.
func FuzzReadContainers(f *testing.F) {
	id := strings.Repeat("0123456789ab", 5) + "0123"
	for _, body := range []string{
		`[]`, `null`, `{}`, `[{"Id":"` + id + `","State":"running","Names":["/kind-control-plane"]}]`,
		`[{"Id":"../../exec","State":"running"}]`, `[{"Id":"` + id + `"`, `[{"Id":"` + id + `","Names":[null]},1]`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		used := 0
		err := readContainers(strings.NewReader(body), func(e *engineContainer) {
			if used++; !isContainerID(e.ID) || strings.ContainsAny(e.ID, "/.%") {
				t.Errorf("expected an ID of hexadecimal digits, found %q", e.ID)
			}
			e.isSelectedBy("io.x-k8s.kind.cluster=kind")
			e.isSelectedBy("kind-")
		})
		if used > len(body) || err == nil && !strings.Contains(body, "]") {
			t.Errorf("%q: expected an error for a listing that is cut, found %d containers", body, used)
		}
	})
}

// FuzzParseAddress parses the address of an engine in a Secret.
func FuzzParseAddress(f *testing.F) {
	for _, text := range []string{"tcp://engine.example.com:2376", "unix:///var/run/docker.sock", "https://user@host", "tcp://[fe80::1%eth0]:2376", "http://x", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		address, err := parseAddress(text)
		if again, againErr := parseAddress(text); address != again || (err == nil) != (againErr == nil) {
			t.Errorf("%q: expected the same answer twice, found %+v and %+v", text, address, again)
		}
	})
}
