// SPDX-License-Identifier: Apache-2.0

package page

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// sleepSavings are what the last sleep of an object saves: only what its status vouches for is counted.
type sleepSavings struct {
	// hasMachines is false for kinds that run on machines of others.
	hasMachines bool
	// machines is how many were recorded when the sleep began; 0 if that is not known.
	machines int
	// from is when all of them were seen stopped, and to when they were started again; nil if that is not known, or not yet.
	from, to *metav1.Time
}

func readSleepSavings(obj client.Object) sleepSavings {
	cd, ok := obj.(*hivev1.ClusterDeployment)
	if !ok {
		return sleepSavings{}
	}
	s := sleepSavings{hasMachines: true}
	// A repair starts machines that somebody else switched off, which is no sleep.
	if record := cd.Status.Hibernation; record != nil && !record.Repair {
		s.machines, s.from, s.to = len(record.Nodes), record.AsleepAt.DeepCopy(), record.ResumeStartedAt.DeepCopy()
	}
	return s
}

// machineHours is machines times hours asleep, until now if the sleep goes on; false if the status does not say.
func (s sleepSavings) machineHours(now time.Time) (hours float64, isKnown bool) {
	if s.machines == 0 || s.from == nil {
		return 0, false
	}
	end := now
	if s.to != nil {
		end = s.to.Time
	}
	return float64(s.machines) * max(0, end.Sub(s.from.Time).Hours()), true
}

// isOngoing reports whether the machines are off now.
func (s sleepSavings) isOngoing() bool { return s.from != nil && s.to == nil }
