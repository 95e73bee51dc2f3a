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
	resuming := &hivev1.HibernationRecord{ResumeStartedAt: new(metav1.NewTime(began))}
	hibernated := &hivev1.HibernationRecord{}
	on := []actuator.Machine{{ID: "i-0", State: actuator.Running}}
	starting := []actuator.Machine{{ID: "i-0", State: actuator.Starting}}
	for name, row := range map[string]struct {
		kept, asked hibernation.Observed
		want        bool
	}{
		"machines are reused for a few seconds":              {hibernation.Observed{Record: resuming, Machines: on}, hibernation.Observed{Record: resuming}, true},
		"machines are not reused when they are older":        {hibernation.Observed{Record: resuming, Machines: on}, hibernation.Observed{Record: resuming, Now: began.Add(machineCacheTTL)}, false},
		"machines are not reused while one starts":           {hibernation.Observed{Record: resuming, Machines: starting}, hibernation.Observed{Record: resuming}, false},
		"machines are not reused before a resume":            {hibernation.Observed{Record: hibernated, Machines: on}, hibernation.Observed{Record: hibernated}, false},
		"machines are not reused when hibernation is wanted": {hibernation.Observed{Record: resuming, Machines: on}, hibernation.Observed{Record: resuming, DesiredPowerState: hivev1.PowerStateHibernating}, false},
		"machines are not reused once the cluster runs":      {hibernation.Observed{Record: resuming, Machines: on}, hibernation.Observed{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cache := &machineCache{entries: map[types.UID]cachedMachines{}}
			row.kept.Now = began
			if row.asked.Now.IsZero() {
				row.asked.Now = began.Add(time.Second)
			}
			cache.storeMachines("uid", row.kept)
			if _, got := cache.freshMachines("uid", row.asked); got != row.want {
				t.Errorf("expected remembered %t, found %t", row.want, got)
			}
			cache.storeMachines("another", hibernation.Observed{Now: began.Add(machineCacheTTL)})
			if len(cache.entries) != 0 {
				t.Errorf("expected nothing to stay of clusters that are gone, found %d", len(cache.entries))
			}
		})
	}
}
