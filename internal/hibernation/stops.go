// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// EffectivePowerState returns what spec.powerState means: a stop that has ended by itself asks for nothing any more. The spec is never
// written, so that it stays what its owner, who may be a GitOps tool, says.
func EffectivePowerState(spec hivev1.PowerState, stops stoprecord.Records) hivev1.PowerState {
	if spec == hivev1.PowerStateHibernating && stops.HasEnded() {
		return hivev1.PowerStateRunning
	}
	return spec
}

// StopEvents are what has happened to the stops since the record before.
func StopEvents(before, after stoprecord.Records) []decision.Event {
	return stoprecord.Events(before, after, torporv1alpha1.UntilAnnotation, powerAction)
}

// stopNote says who asked for the hibernation, why and until when, and what is wrong with that.
func (o Observed) stopNote() string {
	note := o.Stops.Describe()
	if ignored := o.Stops.DescribeIgnored(torporv1alpha1.UntilAnnotation); ignored != "" {
		note += "; " + ignored
	}
	return note
}

// endedStopNote says why a cluster runs whose spec.powerState is Hibernating.
func (o Observed) endedStopNote() string {
	if !o.Stops.HasEnded() {
		return ""
	}
	return fmt.Sprintf("; spec.powerState is Hibernating, and that has ended by %s at %s: to hibernate it again, set a later time or remove the annotation",
		torporv1alpha1.UntilAnnotation, o.Stops.Newest().Until.UTC().Format(time.RFC3339))
}

// untilStopEnds shortens an interval to the end of the stop.
func (o Observed) untilStopEnds(interval time.Duration) time.Duration {
	if !o.Stops.Holds() || o.Stops.Newest().Until == nil {
		return interval
	}
	left := max(o.Stops.Newest().Until.Sub(o.Now), immediately)
	if interval == 0 {
		return left
	}
	return min(interval, left)
}
