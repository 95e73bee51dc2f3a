// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// FuzzServerOverride parses the address in spec.controlPlaneConfig. An accepted URL has a scheme of HTTP, and no
// user.
func FuzzServerOverride(f *testing.F) {
	for _, text := range []string{"https://api.example.com:6443", "api:6443", "file:///etc/passwd", "https://a@b", "http://[::1]:0", "https://[fe80::1%25eth0]:1", "//"} {
		f.Add(text, "10.0.0.1")
	}
	f.Fuzz(func(t *testing.T, text, address string) {
		o := ServerOverride{URL: text, Address: address}
		u, err := o.ParseURL()
		if err == nil && u != nil && (!strings.HasPrefix(u.Scheme, "http") || u.User != nil || u.RawQuery != "" || u.Hostname() == "") {
			t.Errorf("%q: expected an address of a server, found %s", text, u)
		}
		if parsed, err := o.ParseAddress(); err == nil && parsed.Zone() != "" {
			t.Errorf("%q: expected an address without a zone, found %s", address, parsed)
		}
	})
}

// FuzzReadStopOptions reads annotations of a ClusterDeployment. The texts for its status stay short.
func FuzzReadStopOptions(f *testing.F) {
	for _, text := range []string{"10m", "-1s", "9999h", "workers-first", "suspend", "HibernationPossible", "\x00"} {
		f.Add(text, text, text, text)
	}
	f.Fuzz(func(t *testing.T, order, budget, required, groups string) {
		o := ReadStopOptions(map[string]string{
			hivev1.StopOrderAnnotation: order, hivev1.DrainBudgetAnnotation: budget, hivev1.RequireAnnotation: required, hivev1.MachineGroupsAnnotation: groups,
		})
		if o.DrainBudget < 0 || o.DrainBudget > maxDrainBudget || len(o.Ignored)+len(o.InvalidMachineGroups) > 2000 {
			t.Errorf("expected bounded options, found %+v", o)
		}
	})
}
