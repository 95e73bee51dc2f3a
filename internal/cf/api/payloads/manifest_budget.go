// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// These constants limit the size of a manifest. Aliases count with their expanded size, because manifests are expanded
// before they are decoded. A few kilobytes of aliases can expand to gigabytes.
const (
	maxManifestBytes = 256 << 10
	maxExpandedBytes = 1 << 20
	// bytesOfNode is the size of a node without its text.
	bytesOfNode = 64
	// Each app causes several writes, all within one request.
	maxManifestApps      = 100
	maxManifestProcesses = 200
	maxManifestRoutes    = 100
	maxManifestServices  = 100
	maxPorts, maxPort    = 10, 65535
)

// These are the maximum lengths in the schemas of apps, routes and bindings.
const (
	maxAppName     = 250
	maxPath        = 128
	maxBindingName = 255
)

// checkExpansion rejects a manifest whose expanded form would be too large. It does not expand the manifest.
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

// expandedSizes maps each aliased node to its expanded size. While a node is being measured, its size counts as too
// large, because an alias inside the node that refers to the node itself is recursive.
type expandedSizes map[*yaml.Node]int

// measure returns the expanded size of a node. Sizes above the limit are not exact.
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
