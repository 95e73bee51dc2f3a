// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// observeObject returns what the object alone says.
func (c Controller) observeObject(cd *hivev1.ClusterDeployment) hibernation.Observed {
	requestedBy, requestedAt := lastPowerStateWriter(cd)
	timer, malformed := hibernation.ReadTimer(cd)
	now := c.Clock.Now()
	stops := stoprecord.NextRecords(cd.Status.Stops, readStopRequest(cd), now)
	scheduled := stoprecord.FindScheduled(cd.Status.ScheduledStops, cd.Annotations, now)
	spec := hibernation.EffectivePowerState(cd.Spec.PowerState, stops, scheduled)
	switch {
	case stops.Holds():
		requestedBy, requestedAt = stops.RequestedStop().By, stops.RequestedStop().Since.Time
	case scheduled != nil:
		requestedBy, requestedAt = scheduled.Stops[0].By, scheduled.Stops[0].Since.Time
	}
	return hibernation.Observed{
		Now:               now,
		Deleted:           !cd.DeletionTimestamp.IsZero(),
		Paused:            parsesAsTrue(cd.Annotations[hivev1.ReconcilePauseAnnotation]) || parsesAsTrue(cd.Annotations[hivev1.PowerStatePauseAnnotation]),
		Installed:         cd.Spec.Installed,
		SpecPowerState:    spec,
		Stops:             stops,
		Scheduled:         scheduled,
		DesiredPowerState: hibernation.DesiredPowerState(spec, timer, cd.Status.Hibernation, now),
		Timer:             timer,
		Options:           hibernation.ReadStopOptions(cd.Annotations),
		RequestedBy:       requestedBy,
		RequestedAt:       requestedAt,
		Invalid:           cmp.Or(missingFields(cd), malformed),
		NoActuator:        c.unsupportedPlatform(cd),
		Incompatible:      hibernation.IncompatibilityReason(versionSources(cd)...),
		AwaitsAllMachines: parsesAsTrue(cd.Annotations[hivev1.AwaitAllMachinesAnnotation]),
		Record:            cd.Status.Hibernation.DeepCopy(),
	}
}

// isEndOverdue reports whether the time of a stop is over and its record does not say so yet.
func (c Controller) isEndOverdue(cd *hivev1.ClusterDeployment) bool {
	before := stoprecord.Records(cd.Status.Stops)
	return before.Holds() && stoprecord.NextRecords(before, readStopRequest(cd), c.Clock.Now()).HasExpired()
}

// readStopRequest reads what the object asks for.
func readStopRequest(cd *hivev1.ClusterDeployment) stoprecord.Request {
	manager, at := lastPowerStateWriter(cd)
	asked := stoprecord.Request{
		IsStopped: cd.Spec.PowerState == hivev1.PowerStateHibernating, FieldManager: manager, At: at,
		By: cd.Annotations[torporv1alpha1.RequestedByAnnotation], Version: cd.Annotations[torporv1alpha1.RequestVersionAnnotation],
		Reason: cd.Annotations[torporv1alpha1.ReasonAnnotation], Until: cd.Annotations[torporv1alpha1.UntilAnnotation],
		UntilBy: stoprecord.ReadAuthor(cd.Annotations, torporv1alpha1.UntilAnnotation),
	}
	if written := stoprecord.WriteTimeOf(cd, torporv1alpha1.UntilAnnotation); written != nil {
		asked.UntilWrittenAt = written.Time
	}
	return asked
}

func parsesAsTrue(s string) bool {
	b, err := strconv.ParseBool(s)
	return err == nil && b
}

func missingFields(cd *hivev1.ClusterDeployment) string {
	var missing []string
	if cd.Spec.ClusterMetadata == nil || cd.Spec.ClusterMetadata.InfraID == "" {
		missing = append(missing, "spec.clusterMetadata.infraID")
	}
	if kubeconfigSecretName(cd) == "" {
		missing = append(missing, "spec.clusterMetadata.adminKubeconfigSecretRef.name")
	}
	missing = append(missing, cd.Spec.PlatformSettings().Missing...)
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("Expected %s to be set, found empty; set it so that the cluster's machines can be found", strings.Join(missing, ", "))
}

func (c Controller) unsupportedPlatform(cd *hivev1.ClusterDeployment) string {
	if _, ok := c.Actuators[cd.Spec.PlatformSettings().Name]; ok {
		return ""
	}
	return fmt.Sprintf("Expected one of the platforms %s under spec.platform, found another; this platform cannot be hibernated",
		strings.Join(slices.Sorted(maps.Keys(c.Actuators)), ", "))
}

// versionSources returns the sources of the cluster's version, the best first.
func versionSources(cd *hivev1.ClusterDeployment) []string {
	var versions []string
	if s := cd.Status.ClusterVersionStatus; s != nil {
		versions = append(versions, s.Desired.Version)
	}
	versions = append(versions, cd.Labels[hivev1.VersionLabel], cd.Labels[hivev1.VersionMajorMinorPatchLabel])
	if cd.Status.InstallVersion != nil {
		versions = append(versions, *cd.Status.InstallVersion)
	}
	return versions
}

// lastPowerStateWriter returns which field manager last set spec.powerState, and when.
func lastPowerStateWriter(cd *hivev1.ClusterDeployment) (manager string, at time.Time) {
	for _, entry := range cd.ManagedFields {
		if entry.FieldsV1 == nil || entry.Time == nil || !entry.Time.After(at) {
			continue
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			// Who asked is told to people only, so an entry of another form is passed over.
			continue
		}
		if _, ok := fields.Spec["f:powerState"]; ok {
			manager, at = entry.Manager, entry.Time.Time
		}
	}
	return manager, at
}
