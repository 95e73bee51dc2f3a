// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

func TestJoinNames(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("n%04d", 999-i))
	}
	for name, row := range map[string]struct {
		names []string
		want  string
	}{
		"empty list is the empty text":                 {nil, ""},
		"single name is unchanged":                     {[]string{"a"}, "a"},
		"two names are sorted":                         {[]string{"b", "a"}, "a, b"},
		"maximum number of names is listed completely": {strings.Split("e d c b a", " "), "a, b, c, d, e"},
		"one name more than the maximum is counted":    {strings.Split("f e d c b a", " "), "a, b, c, d, e and 1 more"},
		"thousand names are shortened to five":         {many, "n0000, n0001, n0002, n0003, n0004 and 995 more"},
	} {
		t.Run(name, func(t *testing.T) {
			before := strings.Join(row.names, " ")
			if got := joinNames(row.names); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
			if strings.Join(row.names, " ") != before {
				t.Error("expected the names to stay in their order")
			}
		})
	}
}

func TestMachineNamesIncludeTheirNotes(t *testing.T) {
	o := Observed{Machines: []actuator.Machine{{ID: "b", Note: "its BMC does not respond"}, {ID: "a", Name: "worker"}, {ID: "c"}}}
	if got, want := o.machineNames([]string{"a", "b"}), "b: its BMC does not respond, worker (a)"; got != want {
		t.Errorf("expected %q, found %q", want, got)
	}
}
