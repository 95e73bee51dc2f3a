// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// EffectivePowerState returns the power state that spec.powerState and Slumbers request. A stop that has expired no
// longer has any effect, and a Slumber can hibernate the cluster regardless of spec.powerState. The spec is never
// written, because its owner may be a GitOps tool.
func EffectivePowerState(spec hivev1.PowerState, stops stoprecord.Records, scheduled *torporv1alpha1.ScheduledStop, now time.Time) hivev1.PowerState {
	if scheduled != nil {
		return hivev1.PowerStateHibernating
	}
	if spec == hivev1.PowerStateHibernating && stops.HasReachedEnd(now) {
		return hivev1.PowerStateRunning
	}
	return spec
}

// IsStoppedWithoutSlumbers reports whether a cluster should hibernate independent of Slumbers.
func IsStoppedWithoutSlumbers(cd *hivev1.ClusterDeployment, now time.Time) bool {
	return desiredPowerStateOf(cd, nil, now) == hivev1.PowerStateHibernating
}

// desiredPowerStateOf returns the desired power state from the object alone. It does not wait until the status reports
// this state.
func desiredPowerStateOf(cd *hivev1.ClusterDeployment, scheduled *torporv1alpha1.ScheduledStop, now time.Time) hivev1.PowerState {
	timer, _ := ReadTimer(cd) // A malformed timer stops nothing.
	return DesiredPowerState(EffectivePowerState(cd.Spec.PowerState, cd.Status.Stops, scheduled, now), timer, cd.Status.Hibernation, now)
}

// StopEvents returns the events of the stops since the previous record.
func StopEvents(before, after stoprecord.Records) []decision.Event {
	return stoprecord.Events(before, after, torporv1alpha1.UntilAnnotation, powerAction)
}

// stopNote describes the requester, reason and end of the hibernation, and errors in them.
func (o Observed) stopNote() string {
	note := o.Stops.Describe()
	if !o.Stops.Holds() && o.Scheduled != nil {
		note = stoprecord.Records(o.Scheduled.Stops).Describe()
	}
	if ignored := o.Stops.DescribeIgnored(torporv1alpha1.UntilAnnotation); ignored != "" {
		note += "; " + ignored
	}
	return note
}

// endedStopNote returns a note about why a cluster runs although spec.powerState is Hibernating.
func (o Observed) endedStopNote() string {
	if !o.Stops.HasExpired() {
		return ""
	}
	return fmt.Sprintf("; spec.powerState is Hibernating, but %s ended that stop at %s: to hibernate the cluster again, set a later time or remove the annotation",
		torporv1alpha1.UntilAnnotation, o.Stops.RequestedStop().Until.UTC().Format(time.RFC3339))
}

// untilStopEnds shortens an interval so that it ends no later than the stop.
func (o Observed) untilStopEnds(interval time.Duration) time.Duration {
	var end *metav1.Time
	switch {
	case o.Stops.Holds():
		end = o.Stops.RequestedStop().Until
	case o.Scheduled != nil:
		end = o.Scheduled.ExpiresAt
	}
	if end == nil {
		return interval
	}
	left := max(end.Sub(o.Now), immediately)
	if interval == 0 {
		return left
	}
	return min(interval, left)
}
