// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// BuildInput is what the objects of a cluster are made from.
type BuildInput struct {
	Cluster *mocov1beta2.MySQLCluster
	// Settings are those of the user's ConfigMap, if there is one.
	Settings map[string]string
	// Passwords by the keys of the cluster's Secret.
	Passwords map[string][]byte
}

// DesiredObjects is what a cluster consists of, in the order in which it is made. Every object holds exactly the fields that
// Torpor owns, for a server-side apply.
type DesiredObjects struct {
	// Objects are all but the StatefulSet.
	Objects []*unstructured.Unstructured
	// StatefulSet is applied last, since its Pods need the others.
	StatefulSet *unstructured.Unstructured
	// ConfigMapName is the name of the ConfigMap that the Pods use.
	ConfigMapName string
	// OverruledSettings are the user's settings that are not heeded, sorted.
	OverruledSettings []string
}

// BuildObjects makes the objects. Its error names what it cannot make; the others are returned all the same.
func BuildObjects(in BuildInput) (DesiredObjects, error) {
	c := in.Cluster
	cnf, overruled := BuildMyCnf(in.Settings, memoryRequest(c.Spec.PodTemplate.Spec))
	config := buildConfigMap(c, cnf)
	desired := DesiredObjects{ConfigMapName: config.GetName(), OverruledSettings: overruled}
	primary, primaryErr := buildRoleService(c, mocov1beta2.RolePrimary, c.Spec.PrimaryServiceTemplate)
	replica, replicaErr := buildRoleService(c, mocov1beta2.RoleReplica, c.Spec.ReplicaServiceTemplate)
	for _, o := range []*unstructured.Unstructured{
		buildClientSecret(c, in.Passwords), config, newObject(c, "v1", "ServiceAccount", c.ChildName(), nil),
		buildHeadlessService(c), primary, replica, buildDisruptionBudget(c),
	} {
		if o != nil {
			desired.Objects = append(desired.Objects, o)
		}
	}
	set, setErr := buildStatefulSet(c, desired.ConfigMapName)
	desired.StatefulSet = set
	return desired, errors.Join(primaryErr, replicaErr, setErr)
}

// SelectorLabels select what belongs to a cluster.
func SelectorLabels(c *mocov1beta2.MySQLCluster) map[string]string {
	return map[string]string{
		mocov1beta2.NameLabel: mocov1beta2.NameValue, mocov1beta2.InstanceLabel: c.Name,
		mocov1beta2.CreatedByLabel: mocov1beta2.CreatedByValue,
	}
}

// OwnerReference makes the garbage collector delete an object after its cluster.
func OwnerReference(c *mocov1beta2.MySQLCluster) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, mocov1beta2.MySQLClusterKind())
}

// newObject makes an object of a cluster; content is everything but its metadata.
func newObject(c *mocov1beta2.MySQLCluster, version, kind, name string, content map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	maps.Copy(o.Object, content)
	o.SetNamespace(c.Namespace)
	o.SetName(name)
	o.SetLabels(SelectorLabels(c))
	o.SetOwnerReferences([]metav1.OwnerReference{OwnerReference(c)})
	return o
}

// withUserMetadata adds a user's labels and annotations. The labels of Torpor win.
func withUserMetadata(o *unstructured.Unstructured, meta mocov1beta2.ObjectMeta) *unstructured.Unstructured {
	all := maps.Clone(meta.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, o.GetLabels())
	o.SetLabels(all)
	if len(meta.Annotations) > 0 {
		o.SetAnnotations(meta.Annotations)
	}
	return o
}

// buildDisruptionBudget keeps a majority up; a single instance may always be drained.
func buildDisruptionBudget(c *mocov1beta2.MySQLCluster) *unstructured.Unstructured {
	const least = 3
	if c.Spec.Replicas < least {
		return nil
	}
	return newObject(c, "policy/v1", "PodDisruptionBudget", c.ChildName(), map[string]any{"spec": map[string]any{
		"maxUnavailable": int64(c.Spec.Replicas / 2),
		"selector":       map[string]any{"matchLabels": toJSONMap(SelectorLabels(c))},
	}})
}

// toJSONMap returns a map of the type that decoded JSON has.
func toJSONMap(texts map[string]string) map[string]any {
	out := make(map[string]any, len(texts))
	for k, v := range texts {
		out[k] = v
	}
	return out
}

// toJSONFields returns the fields of a typed value in the types that decoded JSON has.
func toJSONFields(value any) (map[string]any, error) {
	found, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", value, err)
	}
	return found, nil
}

// sortedKeys of a map.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
