// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

func TestAGroupOfMachinesIsNamed(t *testing.T) {
	o := observedCluster(hivev1.PowerStateHibernating, nil, actuator.Running, machineOfGroup(0), machineOfGroup(1))
	for _, text := range []string{UnsupportedReason(o), Decide(o).Hibernating.Message} {
		if !strings.Contains(text, "group workers-a, which") {
			t.Errorf("expected a message that names workers-a once, found %q", text)
		}
	}
	for i := range 7 {
		o.Machines = append(o.Machines, actuator.Machine{State: actuator.Running, Group: fmt.Sprintf("workers-%d", i)})
	}
	if text := UnsupportedReason(o); !strings.Contains(text, "workers-4 and 3 more, which") {
		t.Errorf("expected a message that names five groups, found %q", text)
	}
}

func TestAClusterWhoseMachinesOfGroupsAreOffStaysAsleep(t *testing.T) {
	o := observedCluster(hivev1.PowerStateHibernating, openRecord(), actuator.Stopped, machineOfGroup(0))
	if p := Decide(o); p.Rule != "hibernating" || UnsupportedReason(o) != "" {
		t.Errorf("expected the cluster to keep hibernating, found rule %q and %q", p.Rule, UnsupportedReason(o))
	}
}
