// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// definitions returns the kinds that need no StopAdapter, in the order in which commands list them. The definitions
// have no fields, so a list of them costs nothing.
func definitions() []Definition {
	return []Definition{
		clusterDeployments{},
		mysqlClusters{},
		cfApps{},
		switched[deployments]{},
		switched[statefulSets]{},
		switched[cronJobs]{},
	}
}

// Registry is a list of kinds.
type Registry []Kind

// NewRegistry returns the kinds of the definitions.
func NewRegistry(all ...Definition) Registry {
	var kinds Registry
	for _, d := range all {
		kinds = append(kinds, Kind{d})
	}
	return kinds
}

// ListBuiltIn returns the kinds that need no StopAdapter.
func ListBuiltIn() Registry { return NewRegistry(definitions()...) }

// ListOwn returns the kinds whose status has the stops of Slumbers.
func ListOwn() Registry { return ListBuiltIn().filter(Kind.isOwn) }

// ListWorkloads returns the kinds of Kubernetes itself.
func ListWorkloads() Registry { return ListBuiltIn().filter(Kind.IsSwitched) }

func (r Registry) filter(isWanted func(Kind) bool) Registry {
	return slices.DeleteFunc(r, func(k Kind) bool { return !isWanted(k) })
}

// GroupKindOf returns a kind that can be named without its API group. The group of any other kind is empty. It is
// called for every target and object.
func GroupKindOf(kind string) schema.GroupKind {
	for _, d := range definitions() {
		if gvk := d.GVK(); gvk.Kind == kind {
			return gvk.GroupKind()
		}
	}
	return schema.GroupKind{Kind: kind}
}

// IsBuiltIn reports whether a kind needs no StopAdapter.
func IsBuiltIn(kind schema.GroupKind) bool { return GroupKindOf(kind.Kind) == kind }
