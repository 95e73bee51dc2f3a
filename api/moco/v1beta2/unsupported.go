// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"fmt"
	"slices"
)

// UnsupportedFields lists the fields that the spec sets and that Torpor keeps without acting on them, as sorted JSON paths.
func UnsupportedFields(spec MySQLClusterSpec) []string {
	var found []string
	for path, set := range keptFields(spec) {
		if set {
			found = append(found, path)
		}
	}
	for i, c := range spec.PodTemplate.OverwriteContainers {
		if c.Name != initContainer {
			found = append(found, fmt.Sprintf("spec.podTemplate.overwriteContainers[%d]", i))
		}
	}
	slices.Sort(found)
	return found
}

// initContainer is the only container that Torpor adds to the Pods.
const initContainer = "moco-init"

// keptFields says which of the fields that Torpor never acts on are set.
func keptFields(spec MySQLClusterSpec) map[string]bool {
	return map[string]bool{
		"spec.agentUseLocalhost":                    spec.AgentUseLocalhost,
		"spec.collectors":                           len(spec.Collectors) > 0,
		"spec.initializeTimezoneData":               spec.InitializeTimezoneData,
		"spec.logRotationSchedule":                  spec.LogRotationSchedule != "",
		"spec.logRotationSize":                      spec.LogRotationSize != 0,
		"spec.maxDelaySecondsForPodDeletion":        spec.MaxDelaySecondsForPodDeletion != 0,
		"spec.podTemplate.metadata.name":            spec.PodTemplate.Name != "",
		"spec.primaryServiceTemplate.metadata.name": spec.PrimaryServiceTemplate != nil && spec.PrimaryServiceTemplate.Name != "",
		"spec.replicaServiceTemplate.metadata.name": spec.ReplicaServiceTemplate != nil && spec.ReplicaServiceTemplate.Name != "",
		"spec.replicationSourceSecretName":          isSet(spec.ReplicationSourceSecretName),
		"spec.slowQueryLogConfigTmpl":               isSet(spec.SlowQueryLogConfigTmpl),
	}
}

func isSet(s *string) bool { return s != nil && *s != "" }
