// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
)

func TestMachinesAreReusedOnlyWhileAClusterResumes(t *testing.T) {
	began := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	waking := &hivev1.HibernationRecord{ResumeStartedAt: new(metav1.NewTime(began))}
	asleep := &hivev1.HibernationRecord{}
	on := []actuator.Machine{{ID: "i-0", State: actuator.Running}}
	starting := []actuator.Machine{{ID: "i-0", State: actuator.Starting}}
	for name, row := range map[string]struct {
		kept, asked hibernation.Observed
		want        bool
	}{
		"for a few seconds":       {hibernation.Observed{Record: waking, Machines: on}, hibernation.Observed{Record: waking}, true},
		"no longer":               {hibernation.Observed{Record: waking, Machines: on}, hibernation.Observed{Record: waking, Now: began.Add(machineCacheTTL)}, false},
		"not while one starts":    {hibernation.Observed{Record: waking, Machines: starting}, hibernation.Observed{Record: waking}, false},
		"not before it wakes":     {hibernation.Observed{Record: asleep, Machines: on}, hibernation.Observed{Record: asleep}, false},
		"not when sleep is asked": {hibernation.Observed{Record: waking, Machines: on}, hibernation.Observed{Record: waking, DesiredPowerState: hivev1.PowerStateHibernating}, false},
		"not once it runs":        {hibernation.Observed{Record: waking, Machines: on}, hibernation.Observed{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &machineCache{entries: map[types.UID]cachedMachines{}}
			row.kept.Now = began
			if row.asked.Now.IsZero() {
				row.asked.Now = began.Add(time.Second)
			}
			r.storeMachines("uid", row.kept)
			if _, got := r.freshMachines("uid", row.asked); got != row.want {
				t.Errorf("expected remembered %t, found %t", row.want, got)
			}
			r.storeMachines("another", hibernation.Observed{Now: began.Add(machineCacheTTL)})
			if len(r.entries) != 0 {
				t.Errorf("expected nothing to stay of clusters that are gone, found %d", len(r.entries))
			}
		})
	}
}
