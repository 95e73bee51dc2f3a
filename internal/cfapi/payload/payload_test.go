// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"strings"
	"testing"
)

func TestMB(t *testing.T) {
	for size, want := range map[string]int64{"": 0, "64M": 64, "64MB": 64, "1g": 1024, " 2G ": 2048, "1T": 1 << 20} {
		if got, err := MB(size); err != nil || got != want {
			t.Errorf("%q: found %d (%v), want %d", size, got, err, want)
		}
	}
	for _, size := range []string{"M", "1", "-1M", "0M", "1.5G", "99999999999999999999G", "é"} {
		if got, err := MB(size); err == nil {
			t.Errorf("%q: found %d, want it refused", size, got)
		}
	}
}

func TestDecodeTakesWhatNewerClientsSend(t *testing.T) {
	var d Deployment
	body := `{"strategy":"rolling","something":{"new":1},"options":{"max_in_flight":null,"web_instances":null},"revision":null}`
	if err := Decode(strings.NewReader(body), &d); err != nil || d.Strategy != "rolling" {
		t.Errorf("found %+v (%v), want it read", d, err)
	}
	if err := Decode(strings.NewReader(""), &d); err != nil {
		t.Errorf("found %v, want an empty body read", err)
	}
	if err := Decode(strings.NewReader(strings.Repeat(" ", maxBody+1)), &d); err == nil {
		t.Error("expected a body above 1 MiB refused, found it read")
	}
}

func FuzzManifest(f *testing.F) {
	f.Add("applications: [{name: a, docker: {image: x}, instances: 2, memory: 64M, env: {A: 1}}]")
	f.Fuzz(func(t *testing.T, body string) {
		m, err := ManifestOf(strings.NewReader(body))
		if err != nil {
			return
		}
		for _, a := range m.Applications {
			if a.Name == "" {
				t.Error("expected a name of each app, found none")
			}
		}
	})
}
