// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// definitions returns the kinds that need no StopAdapter, in the order in which commands list them. The definitions
// have no fields, so the list is cheap.
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

// ListOwn returns the built-in kinds that are not workloads, whose controllers read the stops of Slumbers from the
// status.
func ListOwn() Registry { return ListBuiltIn().filter(Kind.isOwn) }

// ListWorkloads returns the built-in kinds of Kubernetes itself.
func ListWorkloads() Registry { return ListBuiltIn().filter(Kind.IsSwitched) }

func (r Registry) filter(isWanted func(Kind) bool) Registry {
	return slices.DeleteFunc(r, func(k Kind) bool { return !isWanted(k) })
}

// GroupKindOf returns the group and kind of a built-in kind, which can be named without its API group; for any other
// kind, the group is empty. It must be cheap, because it is called for every target and object.
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
