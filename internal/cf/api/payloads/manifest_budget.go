// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// The size of a manifest. Aliases are counted as what they stand for, because the manifest is expanded before it is read: a few
// kilobytes of them stand for gigabytes.
const (
	maxManifestBytes = 256 << 10
	maxExpandedBytes = 1 << 20
	// bytesOfNode is what a node counts beside its text.
	bytesOfNode = 64
	// An app is some writes, and all of them are one request.
	maxManifestApps      = 100
	maxManifestProcesses = 200
	maxManifestRoutes    = 100
	maxManifestServices  = 100
	maxPorts, maxPort    = 10, 65535
)

// checkExpansion refuses a manifest that is too large with its aliases expanded, without expanding them.
func checkExpansion(raw []byte) error {
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return apierrors.NewMessageParseError("Request invalid due to parse error: " + err.Error())
	}
	if size := (expandedSizes{}).measure(&document); size > maxExpandedBytes {
		return apierrors.NewUnprocessableEntity(fmt.Sprintf("expected a manifest of at most %d KiB with its aliases expanded, found more; use fewer aliases, or send fewer apps at once", maxExpandedBytes>>10))
	}
	return nil
}

// expandedSizes are the sizes of what aliases stand for. A node that is being measured counts as too large: it contains itself.
type expandedSizes map[*yaml.Node]int

// measure returns the size of a node with its aliases expanded; above the limit, it is exact no more.
func (s expandedSizes) measure(node *yaml.Node) int {
	if node.Kind == yaml.AliasNode {
		size, known := s[node.Alias]
		if !known {
			s[node.Alias] = maxExpandedBytes + 1
			size = s.measure(node.Alias)
			s[node.Alias] = size
		}
		return size
	}
	size := bytesOfNode + len(node.Value)
	for _, child := range node.Content {
		if size += s.measure(child); size > maxExpandedBytes {
			break
		}
	}
	return size
}
