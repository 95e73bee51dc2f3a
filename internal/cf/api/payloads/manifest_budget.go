// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// These are the limits of a manifest. An alias counts with its expanded size, because the manifest is expanded before
// it is decoded, and a few kilobytes of aliases can expand to gigabytes.
const (
	maxManifestBytes = 256 << 10
	maxExpandedBytes = 1 << 20
	// bytesOfNode is the size of a node without its text.
	bytesOfNode = 64
	// Each app costs several writes, and one request does them all.
	maxManifestApps      = 100
	maxManifestProcesses = 200
	maxManifestRoutes    = 100
	maxManifestServices  = 100
	maxPorts, maxPort    = 10, 65535
)

// checkExpansion rejects a manifest that would be too large with its aliases expanded, without expanding them.
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

// expandedSizes holds the expanded size of each aliased node. A node counts as too large while it is being measured,
// because an alias found inside it refers to itself.
type expandedSizes map[*yaml.Node]int

// measure returns the size of a node with its aliases expanded. Above the limit the size is not exact.
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
