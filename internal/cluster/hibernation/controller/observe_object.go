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
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// objectFacts are facts about the object that several steps of a pass need. A pass reads them once.
type objectFacts struct {
	platform hivev1.PlatformSettings
	// declaredVersion is the cluster's version according to its object; empty if the object contains none.
	declaredVersion string
}

func readFacts(cd *hivev1.ClusterDeployment) objectFacts {
	return objectFacts{platform: cd.Spec.PlatformSettings(), declaredVersion: declaredVersion(cd)}
}

// observeObject returns the facts that depend on the object alone.
func (c Controller) observeObject(cd *hivev1.ClusterDeployment, facts objectFacts) hibernation.Observed {
	requestedBy, requestedAt := lastPowerStateWriter(cd)
	timer, malformed := hibernation.ReadTimer(cd)
	now := c.Clock.Now()
	stops := stoprecord.NextRecords(cd.Status.Stops, readStopRequest(cd), now)
	scheduled := stoprecord.FindScheduled(cd.Status.ScheduledStops, cd.Annotations, now)
	spec := hibernation.EffectivePowerState(cd.Spec.PowerState, stops, scheduled, now)
	switch {
	case stops.Holds():
		requestedBy, requestedAt = stops.RequestedStop().By, stops.RequestedStop().Since.Time
	case scheduled != nil:
		requestedBy, requestedAt = scheduled.Stops[0].By, scheduled.Stops[0].Since.Time
	}
	options := hibernation.ReadStopOptions(cd.Annotations)
	options.RequiresPossible = options.RequiresPossible || c.RequiresPossible
	return hibernation.Observed{
		Now:               now,
		Deleted:           !cd.DeletionTimestamp.IsZero(),
		Paused:            cd.HasTrueAnnotation(hivev1.ReconcilePauseAnnotation) || cd.HasTrueAnnotation(hivev1.PowerStatePauseAnnotation),
		Installed:         cd.Spec.Installed,
		SpecPowerState:    spec,
		Stops:             stops,
		Scheduled:         scheduled,
		DesiredPowerState: hibernation.DesiredPowerState(spec, timer, cd.Status.Hibernation, now),
		Timer:             timer,
		Options:           options,
		RequestedBy:       requestedBy,
		RequestedAt:       requestedAt,
		Invalid:           cmp.Or(invalidSpec(cd, facts.platform), malformed),
		NoActuator:        c.unsupportedPlatform(cd, facts.platform),
		IsInfraDisabled:   isInfraDisabled(cd),
		Incompatible:      hibernation.IncompatibilityReason(facts.declaredVersion),
		SkipsOperators:    skipsOperators(cd),
		AwaitsAllMachines: cd.HasTrueAnnotation(hivev1.AwaitAllMachinesAnnotation),
		Record:            cd.Status.Hibernation.DeepCopy(),
	}
}

// isEndOverdue reports whether a stop has expired and its record does not reflect that yet.
func (c Controller) isEndOverdue(cd *hivev1.ClusterDeployment) bool {
	before := stoprecord.Records(cd.Status.Stops)
	return before.Holds() && stoprecord.NextRecords(before, readStopRequest(cd), c.Clock.Now()).HasExpired()
}

// readStopRequest reads the stop that the object requests.
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

// isInfraDisabled reports whether the owner of the machines has opted out of power management.
func isInfraDisabled(cd *hivev1.ClusterDeployment) bool {
	return cd.HasTrueAnnotation(hivev1.InfraDisabledAnnotation)
}

// skipsOperators reports whether a resume must not wait for ClusterOperators.
func skipsOperators(cd *hivev1.ClusterDeployment) bool {
	skips, err := strconv.ParseBool(cd.Labels[hivev1.ResumeSkipsClusterOperatorsLabel])
	return err == nil && skips || cd.HasTrueAnnotation(hivev1.ResumeSkipsClusterOperatorsLabel)
}

// invalidSpec describes missing or malformed fields of the spec; empty if all are valid.
func invalidSpec(cd *hivev1.ClusterDeployment, platform hivev1.PlatformSettings) string {
	missing, purpose := missingFields(cd, platform), "the cluster's machines can be found"
	if isInfraDisabled(cd) {
		purpose = "the cluster's API server can be found"
	}
	if len(missing) > 0 {
		return fmt.Sprintf("Expected %s to be set, found it empty; set it so that %s", strings.Join(missing, ", "), purpose)
	}
	if err := hibernation.ReadServerOverride(cd).Check(); err != nil {
		return "Torpor does not connect to the API server: " + err.Error()
	}
	return ""
}

// missingFields returns the required fields that are empty. Clusters with unmanaged machines require no fields about
// machines.
func missingFields(cd *hivev1.ClusterDeployment, platform hivev1.PlatformSettings) []string {
	var missing []string
	isManaged := !isInfraDisabled(cd)
	if isManaged && (cd.Spec.ClusterMetadata == nil || cd.Spec.ClusterMetadata.InfraID == "") {
		missing = append(missing, "spec.clusterMetadata.infraID")
	}
	if kubeconfigSecretName(cd) == "" {
		missing = append(missing, "spec.clusterMetadata.adminKubeconfigSecretRef.name")
	}
	if isManaged {
		missing = append(missing, platform.Missing...)
	}
	return missing
}

// unsupportedPlatform returns the reason why Torpor cannot stop or start the cluster's machines; empty if an actuator
// exists for the platform, and power management is not disabled.
func (c Controller) unsupportedPlatform(cd *hivev1.ClusterDeployment, platform hivev1.PlatformSettings) string {
	if isInfraDisabled(cd) {
		return fmt.Sprintf("The annotation %s is %.40q, so Torpor neither lists, starts nor stops machines; remove the annotation to make spec.powerState effective",
			hivev1.InfraDisabledAnnotation, cd.Annotations[hivev1.InfraDisabledAnnotation])
	}
	if _, ok := c.Actuators[platform.Name]; ok {
		return ""
	}
	return fmt.Sprintf("Expected one of the platforms %s under spec.platform, found another platform, which cannot be hibernated",
		strings.Join(slices.Sorted(maps.Keys(c.Actuators)), ", "))
}

// declaredVersion returns the cluster's version from the status, a label, or the installation, in this order; empty if
// none of them contains a version.
func declaredVersion(cd *hivev1.ClusterDeployment) string {
	var current, installed string
	if s := cd.Status.ClusterVersionStatus; s != nil {
		current = s.Desired.Version
	}
	if cd.Status.InstallVersion != nil {
		installed = *cd.Status.InstallVersion
	}
	return cmp.Or(current, cd.Labels[hivev1.VersionLabel], cd.Labels[hivev1.VersionMajorMinorPatchLabel], installed)
}

// lastPowerStateWriter returns the field manager that last set spec.powerState, and the time.
func lastPowerStateWriter(cd *hivev1.ClusterDeployment) (manager string, at time.Time) {
	for _, entry := range cd.ManagedFields {
		if entry.FieldsV1 == nil || entry.Time == nil || !entry.Time.After(at) {
			continue
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			// The requester is only shown for information, so an entry in another form is skipped.
			continue
		}
		if _, ok := fields.Spec["f:powerState"]; ok {
			manager, at = entry.Manager, entry.Time.Time
		}
	}
	return manager, at
}
