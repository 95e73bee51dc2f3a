// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernate"
)

func TestMachinesAreRememberedOnlyWhileAClusterWakes(t *testing.T) {
	began := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	waking := &hivev1.HibernationRecord{ResumeStartedAt: new(metav1.NewTime(began))}
	asleep := &hivev1.HibernationRecord{}
	on := []actuator.Machine{{ID: "i-0", State: actuator.Running}}
	starting := []actuator.Machine{{ID: "i-0", State: actuator.Starting}}
	for name, row := range map[string]struct {
		kept, asked hibernate.Observed
		want        bool
	}{
		"for a few seconds":       {hibernate.Observed{Record: waking, Machines: on}, hibernate.Observed{Record: waking}, true},
		"no longer":               {hibernate.Observed{Record: waking, Machines: on}, hibernate.Observed{Record: waking, Now: began.Add(recentFor)}, false},
		"not while one starts":    {hibernate.Observed{Record: waking, Machines: starting}, hibernate.Observed{Record: waking}, false},
		"not before it wakes":     {hibernate.Observed{Record: asleep, Machines: on}, hibernate.Observed{Record: asleep}, false},
		"not when sleep is asked": {hibernate.Observed{Record: waking, Machines: on}, hibernate.Observed{Record: waking, Want: hivev1.PowerStateHibernating}, false},
		"not once it runs":        {hibernate.Observed{Record: waking, Machines: on}, hibernate.Observed{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recent{seen: map[types.UID]sighting{}}
			row.kept.Now = began
			if row.asked.Now.IsZero() {
				row.asked.Now = began.Add(time.Second)
			}
			r.keep("uid", row.kept)
			if _, got := r.machines("uid", row.asked); got != row.want {
				t.Errorf("expected remembered %t, found %t", row.want, got)
			}
			r.keep("another", hibernate.Observed{Now: began.Add(recentFor)})
			if len(r.seen) != 0 {
				t.Errorf("expected nothing to stay of clusters that are gone, found %d", len(r.seen))
			}
		})
	}
}
