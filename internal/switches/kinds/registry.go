// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"slices"
	"strings"

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

// ListOwn returns the built-in kinds that are not workloads. Slumbers write their stops of these objects to the status
// and to an annotation, and the controllers of these kinds act on them.
func ListOwn() Registry { return ListBuiltIn().filter(Kind.isOwn) }

// ListWorkloads returns the built-in kinds of Kubernetes itself.
func ListWorkloads() Registry { return ListBuiltIn().filter(Kind.IsSwitched) }

// MaxWaves is the number of different results of Wave.
const MaxWaves = 3

// Wave is a group of kinds whose objects are stopped together.
type Wave struct {
	Name  string
	Kinds Registry
}

// ListWorkloadWaves returns the waves of the workloads, in the order of a stop.
func ListWorkloadWaves() []Wave {
	return []Wave{{"first", ListWorkloads().FilterByWave(0)}, {"second", ListWorkloads().FilterByWave(1)}}
}

// FilterByWave returns the kinds of a wave. The waves are numbered from zero, in the order of a stop.
func (r Registry) FilterByWave(wave int) Registry {
	return r.filter(func(k Kind) bool { return k.Wave() == wave })
}

// Names returns the singular names of the kinds in commands, such as deployment.
func (r Registry) Names() []string {
	var names []string
	for _, k := range r {
		names = append(names, k.Names()[0])
	}
	return names
}

// Plurals returns the kinds in the plural, such as Deployments.
func (r Registry) Plurals() []string {
	var plurals []string
	for _, k := range r {
		plurals = append(plurals, k.GVK().Kind+"s")
	}
	return plurals
}

// JoinNames returns a list in a sentence, such as "a, b and c".
func JoinNames(names []string) string {
	last := len(names) - 1
	if last <= 0 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func (r Registry) filter(isWanted func(Kind) bool) Registry {
	return slices.DeleteFunc(slices.Clone(r), func(k Kind) bool { return !isWanted(k) })
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
