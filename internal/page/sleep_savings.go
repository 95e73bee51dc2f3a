// SPDX-License-Identifier: Apache-2.0

package page

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// sleepSavings describes what the last hibernation of a cluster saves. Only figures that the status confirms are
// counted.
type sleepSavings struct {
	// hasMachines is false for kinds without machines of their own.
	hasMachines bool
	// machines is the number of machines recorded when the hibernation began; 0 if unknown.
	machines int
	// from is when all machines were observed stopped, and to is when they were started again; nil if unknown or not
	// yet.
	from, to *metav1.Time
}

func readSleepSavings(obj client.Object) sleepSavings {
	cd, ok := obj.(*hivev1.ClusterDeployment)
	if !ok {
		return sleepSavings{}
	}
	s := sleepSavings{hasMachines: true}
	// A repair starts machines that were switched off outside Torpor, which is not a hibernation.
	if record := cd.Status.Hibernation; record != nil && !record.Repair {
		s.machines, s.from, s.to = len(record.Nodes), record.AsleepAt.DeepCopy(), record.ResumeStartedAt.DeepCopy()
	}
	return s
}

// machineHours returns the number of machines times the hours of the hibernation, until now if it continues. isKnown is
// false if the status lacks a figure.
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
