// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// minimumVersion is the first OpenShift release whose clusters survive a stop of all machines.
const minimumVersion = "4.4.8"

const (
	maxShownVersion  = 64
	maxVersionLength = 256
)

// IncompatibilityReason returns the reason why a cluster with the first non-empty version cannot hibernate, or "" if it
// can hibernate. A pre-release of the minimum is older than the minimum.
func IncompatibilityReason(sources ...string) string {
	for _, v := range sources {
		if v == "" {
			continue
		}
		// The length of the version is limited. Cutting a version off cannot make it newer.
		parsed, err := version.ParseSemantic(v[:min(len(v), maxVersionLength)])
		if err != nil {
			return fmt.Sprintf("Expected an OpenShift version such as %s, found %q; correct status.clusterVersionStatus or the version label",
				minimumVersion, v[:min(len(v), maxShownVersion)])
		}
		if parsed.LessThan(version.MustParseSemantic(minimumVersion)) {
			return fmt.Sprintf("Expected OpenShift %s or later, found %.*s; upgrade the cluster to hibernate it",
				minimumVersion, maxShownVersion, parsed)
		}
		return ""
	}
	return fmt.Sprintf("No version of the cluster is known; expected OpenShift %s or later in status.clusterVersionStatus.desired.version "+
		"or in the version label", minimumVersion)
}
