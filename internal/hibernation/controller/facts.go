// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
)

// platform is what every platform's part of the spec comes down to.
type platform struct{ name, region, secret string }

// platformOf is the one place that knows the platforms' fields. The next platform is one more case.
func platformOf(cd *hivev1.ClusterDeployment) platform {
	if aws := cd.Spec.Platform.AWS; aws != nil {
		return platform{name: "aws", region: aws.Region, secret: aws.CredentialsSecretRef.Name}
	}
	return platform{}
}

func kubeconfigSecretName(cd *hivev1.ClusterDeployment) string {
	if cd.Spec.ClusterMetadata == nil {
		return ""
	}
	return cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name
}

// observeObject are what the object alone tells.
func (c Controller) observeObject(cd *hivev1.ClusterDeployment) hibernation.Observed {
	who, when := lastPowerStateWriter(cd)
	return hibernation.Observed{
		Now:               c.Clock.Now(),
		Deleted:           !cd.DeletionTimestamp.IsZero(),
		Paused:            parsesAsTrue(cd.Annotations[hivev1.ReconcilePauseAnnotation]) || parsesAsTrue(cd.Annotations[hivev1.PowerStatePauseAnnotation]),
		Installed:         cd.Spec.Installed,
		DesiredPowerState: cd.Spec.PowerState,
		RequestedBy:       who,
		RequestedAt:       when,
		Invalid:           missingFields(cd),
		NoActuator:        c.unsupportedPlatform(cd),
		Incompatible:      hibernation.IncompatibilityReason(versionSources(cd)...),
		Record:            cd.Status.Hibernation.DeepCopy(),
	}
}

func parsesAsTrue(s string) bool {
	b, err := strconv.ParseBool(s)
	return err == nil && b
}

func missingFields(cd *hivev1.ClusterDeployment) string {
	var missing []string
	m := cd.Spec.ClusterMetadata
	if m == nil || m.InfraID == "" {
		missing = append(missing, "spec.clusterMetadata.infraID")
	}
	if m == nil || m.AdminKubeconfigSecretRef.Name == "" {
		missing = append(missing, "spec.clusterMetadata.adminKubeconfigSecretRef.name")
	}
	if p := platformOf(cd); p.name != "" {
		if p.region == "" {
			missing = append(missing, "spec.platform."+p.name+".region")
		}
		if p.secret == "" {
			missing = append(missing, "spec.platform."+p.name+".credentialsSecretRef.name")
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("Expected %s to be set, found empty; set it so that the cluster's machines can be found", strings.Join(missing, ", "))
}

func (c Controller) unsupportedPlatform(cd *hivev1.ClusterDeployment) string {
	if _, ok := c.Actuators[platformOf(cd).name]; ok {
		return ""
	}
	return fmt.Sprintf("Expected one of the platforms %s under spec.platform, found another; this platform cannot be hibernated",
		strings.Join(slices.Sorted(maps.Keys(c.Actuators)), ", "))
}

// versionSources are the sources of the cluster's version, the best first.
func versionSources(cd *hivev1.ClusterDeployment) []string {
	var list []string
	if s := cd.Status.ClusterVersionStatus; s != nil {
		list = append(list, s.Desired.Version)
	}
	list = append(list, cd.Labels[hivev1.VersionLabel], cd.Labels[hivev1.VersionMajorMinorPatchLabel])
	if cd.Status.InstallVersion != nil {
		list = append(list, *cd.Status.InstallVersion)
	}
	return list
}

// lastPowerStateWriter is who last set spec.powerState and when, as the API server's field management noted it.
func lastPowerStateWriter(cd *hivev1.ClusterDeployment) (who string, when time.Time) {
	for _, entry := range cd.ManagedFields {
		if entry.FieldsV1 == nil || entry.Time == nil || !entry.Time.After(when) {
			continue
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, ok := fields.Spec["f:powerState"]; ok {
			who, when = entry.Manager, entry.Time.Time
		}
	}
	return who, when
}
