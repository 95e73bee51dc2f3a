// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// BuildInput is the input from which the objects of a cluster are built.
type BuildInput struct {
	Cluster *mocov1beta2.MySQLCluster
	// Settings holds the settings in the user's ConfigMap, if it exists.
	Settings map[string]string
	// Passwords holds the passwords, by the keys of the cluster's Secret.
	Passwords map[string][]byte
	// StatefulSet is the live StatefulSet. It is nil if it does not exist.
	StatefulSet *appsv1.StatefulSet
	// RunningCnf is the my.cnf that the StatefulSet's Pods use. It is empty if the content is unknown.
	RunningCnf string
	// ExporterImage is the image of mysqld_exporter.
	ExporterImage string
}

// DesiredObjects holds the objects of a cluster in the order of creation. Every object contains exactly the fields that
// Torpor owns, for server-side apply.
type DesiredObjects struct {
	// Objects holds all objects except the StatefulSet.
	Objects []*unstructured.Unstructured
	// StatefulSet is applied last, because its Pods need the other objects.
	StatefulSet *unstructured.Unstructured
	// ConfigMapName is the name of the ConfigMap that the Pods use.
	ConfigMapName string
	// OverruledSettings lists the user's settings that are ignored. Those in the key _include come last.
	OverruledSettings []string
}

// BuildObjects builds the objects. The error lists the objects that cannot be built; the others are returned
// nevertheless.
func BuildObjects(in BuildInput) (DesiredObjects, error) {
	c := in.Cluster
	cnf, overruled := BuildMyCnf(in.Settings, ServerSizes{Memory: memoryRequest(c.Spec.PodTemplate.Spec), Volume: volumeRequest(c)})
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
	set, setErr := buildStatefulSet(in, desired.ConfigMapName)
	desired.StatefulSet = set
	return desired, errors.Join(refuseSettings(in), primaryErr, replicaErr, setErr)
}

// refuseSettings returns an error that lists the harmful settings in the user's ConfigMap, or nil if it has none.
func refuseSettings(in BuildInput) error {
	found := describeHarmfulSettings(in.Settings, settingContext{
		IsNew: in.StatefulSet == nil, LoadsTimeZones: in.Cluster.Spec.InitializeTimezoneData, Running: in.RunningCnf,
	})
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("spec.mysqlConfigMapName: expected no setting that stops servers or loses data, found %s", strings.Join(found, "; "))
}

// ConfigMapInUse returns the name of the ConfigMap that the Pods of a StatefulSet use, or "" if there is no such
// volume.
func ConfigMapInUse(set *appsv1.StatefulSet) string {
	if set == nil {
		return ""
	}
	for _, v := range set.Spec.Template.Spec.Volumes {
		if v.Name == configVolume && v.ConfigMap != nil {
			return v.ConfigMap.Name
		}
	}
	return ""
}

// RunningCnf returns the my.cnf contained in a ConfigMap.
func RunningCnf(config *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(config.Object, "data", cnfFile) // MOCO's ConfigMaps have the same key.
	return text
}

// SelectorLabels returns the labels that select the objects of a cluster.
func SelectorLabels(c *mocov1beta2.MySQLCluster) map[string]string {
	return map[string]string{
		mocov1beta2.NameLabel: mocov1beta2.NameValue, mocov1beta2.InstanceLabel: c.Name,
		mocov1beta2.CreatedByLabel: mocov1beta2.CreatedByValue,
	}
}

// ListTLSHosts returns the host names for the certificate: those of the instances and of the Services.
func ListTLSHosts(c *mocov1beta2.MySQLCluster) []string {
	var hosts []string
	for _, domain := range []string{"", ".svc", ".svc.cluster.local"} {
		for _, service := range []string{"*." + c.ChildName(), c.ChildName(), c.ChildName() + "-primary", c.ChildName() + "-replica"} {
			hosts = append(hosts, service+"."+c.Namespace+domain)
		}
	}
	return append(hosts, c.ChildName()+"-primary", c.ChildName()+"-replica")
}

// OwnerReference returns a reference to the cluster, so that the garbage collector deletes an object after its cluster.
func OwnerReference(c *mocov1beta2.MySQLCluster) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, mocov1beta2.MySQLClusterKind())
}

// newObject builds an object of a cluster. content is the object without its metadata.
func newObject(c *mocov1beta2.MySQLCluster, version, kind, name string, content map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	maps.Copy(o.Object, content)
	o.SetNamespace(c.Namespace)
	o.SetName(name)
	o.SetLabels(SelectorLabels(c))
	o.SetOwnerReferences([]metav1.OwnerReference{OwnerReference(c)})
	return o
}

// withUserMetadata adds the user's labels and annotations. Torpor's labels take precedence.
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

// buildDisruptionBudget builds a PodDisruptionBudget that protects a majority of the Pods from evictions. It returns
// nil for a cluster with fewer than three instances.
func buildDisruptionBudget(c *mocov1beta2.MySQLCluster) *unstructured.Unstructured {
	const least = 3
	if c.InstanceCount() < least {
		return nil
	}
	return newObject(c, "policy/v1", "PodDisruptionBudget", c.ChildName(), map[string]any{"spec": map[string]any{
		"maxUnavailable": int64(c.InstanceCount() / 2),
		"selector":       map[string]any{"matchLabels": toJSONMap(SelectorLabels(c))},
	}})
}

func toJSONMap(texts map[string]string) map[string]any {
	out := make(map[string]any, len(texts))
	for k, v := range texts {
		out[k] = v
	}
	return out
}

// toJSONFields converts a typed value to the types of decoded JSON.
func toJSONFields(value any) (map[string]any, error) {
	found, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", value, err)
	}
	return found, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// These are the ports of an instance.
const (
	mysqlPort  = 3306
	mysqlxPort = 33060
	adminPort  = 33062
)

// buildHeadlessService builds the Service that gives every Pod a DNS name, even if the Pod is not ready, because a
// replica may become a source before it is ready.
func buildHeadlessService(c *mocov1beta2.MySQLCluster) *unstructured.Unstructured {
	return newObject(c, "v1", "Service", c.ChildName(), map[string]any{"spec": map[string]any{
		"clusterIP": "None", "publishNotReadyAddresses": true, "selector": toJSONMap(SelectorLabels(c)),
		"ports": []any{servicePort("mysql", mysqlPort), servicePort("mysqlx", mysqlxPort), servicePort("mysql-admin", adminPort)},
	}})
}

// buildRoleService builds a Service that selects the Pods with a role. Users cannot change its ports and selector.
func buildRoleService(c *mocov1beta2.MySQLCluster, role mocov1beta2.Role, t *mocov1beta2.ServiceTemplate) (*unstructured.Unstructured, error) {
	spec := map[string]any{}
	if t != nil && t.Spec != nil {
		found, err := toJSONFields(t.Spec)
		if err != nil {
			return nil, fmt.Errorf("read spec.%sServiceTemplate: %w", role, err)
		}
		spec = found
	}
	selector := toJSONMap(SelectorLabels(c))
	selector[mocov1beta2.RoleLabel] = string(role)
	maps.Copy(spec, map[string]any{
		"selector": selector, "ports": []any{servicePort("mysql", mysqlPort), servicePort("mysqlx", mysqlxPort)},
	})
	o := newObject(c, "v1", "Service", c.ChildName()+"-"+string(role), map[string]any{"spec": spec})
	if t == nil {
		return o, nil
	}
	return withUserMetadata(o, t.ObjectMeta), nil
}

func servicePort(name string, number int64) map[string]any {
	return map[string]any{"name": name, "port": number, "targetPort": number, "protocol": "TCP"}
}

// buildStatefulSet builds a StatefulSet whose controller creates all Pods in parallel and never replaces an outdated
// Pod. Only Decide determines when to replace which Pod. With a partition instead, the primary could not be replaced
// last, and a rollout would continue without a manager.
func buildStatefulSet(in BuildInput, config string) (*unstructured.Unstructured, error) {
	c := in.Cluster
	if !c.Spec.HasPossibleReplicas() { // Upstream's schema allows numbers outside of these bounds.
		return nil, fmt.Errorf("spec.replicas: expected 1 to %d, found %d; correct it", mocov1beta2.MaxReplicas, c.Spec.Replicas)
	}
	spec, err := buildPodSpec(c, config, in.ExporterImage)
	if err != nil {
		return nil, err
	}
	claims, err := buildVolumeClaims(in)
	if err != nil {
		return nil, err
	}
	replicas := int64(c.InstanceCount())
	if c.Spec.Offline {
		replicas = 0
	}
	labels := toJSONMap(c.Spec.PodTemplate.Labels)
	maps.Copy(labels, toJSONMap(SelectorLabels(c)))
	inputs, err := hashInputs(in)
	if err != nil {
		return nil, err
	}
	annotations := toJSONMap(c.Spec.PodTemplate.Annotations)
	annotations[mocov1beta2.InputsAnnotation] = inputs
	meta := map[string]any{"labels": labels, "annotations": annotations}
	return newObject(c, "apps/v1", "StatefulSet", c.ChildName(), map[string]any{"spec": map[string]any{
		"replicas": replicas, "serviceName": c.ChildName(), "podManagementPolicy": "Parallel",
		"updateStrategy":       map[string]any{"type": "OnDelete"},
		"selector":             map[string]any{"matchLabels": toJSONMap(SelectorLabels(c))},
		"template":             map[string]any{"metadata": meta, "spec": spec},
		"volumeClaimTemplates": claims,
	}}), nil
}

// hashInputs hashes all fields and settings by which users can change the Pod template, and nothing that depends on the
// version of Torpor.
func hashInputs(in BuildInput) (string, error) {
	spec := &in.Cluster.Spec
	pod := &spec.PodTemplate
	overwrites, err := containerOverwrites(in.Cluster, mocov1beta2.InitContainer)
	if err != nil {
		return "", err
	}
	exporter, err := containerOverwrites(in.Cluster, mocov1beta2.ExporterContainer)
	if err != nil {
		return "", err
	}
	slowLog, err := containerOverwrites(in.Cluster, mocov1beta2.SlowLogContainer)
	if err != nil {
		return "", err
	}
	all := []any{
		in.Cluster.TLSSecretName(), spec.Collectors, exporter, pod.Labels, pod.Annotations, pod.Spec, overwrites, spec.ServerIDBase, spec.StartupWaitSeconds, spec.LogRotationSize, spec.InitializeTimezoneData, in.Settings,
	}
	if spec.SourceSecretName() != "" { // All other clusters keep the hash that older versions of Torpor computed.
		all = append(all, "copy")
	}
	if c := in.Cluster; c.Spec.DisableSlowQueryLogContainer {
		all = append(all, "no slow log")
	} else if len(slowLog) > 0 {
		all = append(all, slowLog)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("encode spec.podTemplate: %w", err)
	}
	var sorted any // Decoding sorts the keys of the Pod spec, which is stored as the user wrote it.
	if err := json.Unmarshal(text, &sorted); err != nil {
		return "", fmt.Errorf("decode spec.podTemplate: %w", err)
	}
	if text, err = json.Marshal(sorted); err != nil {
		return "", fmt.Errorf("encode spec.podTemplate: %w", err)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(text) // Writing to a hash never fails.
	return fmt.Sprintf("%016x", sum.Sum64()), nil
}

// buildVolumeClaims builds claim templates. The claims are deleted with the cluster, not with the StatefulSet. They have
// the labels of spec.volumeClaimTemplates; the StatefulSet controller adds those of its selector to each claim. A
// StatefulSet's claim templates are immutable, so templates that an older version of Torpor labelled keep their labels.
func buildVolumeClaims(in BuildInput) ([]any, error) {
	var list []any
	c := in.Cluster
	for _, t := range c.Spec.VolumeClaimTemplates {
		spec, err := toJSONFields(&t.Spec)
		if err != nil {
			return nil, fmt.Errorf("read spec.volumeClaimTemplates: %w", err)
		}
		claim := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec,
		}}
		claim.SetName(t.Name)
		if isClaimLabelled(in.StatefulSet, t.Name) {
			claim.SetLabels(SelectorLabels(c))
		}
		claim.SetOwnerReferences([]metav1.OwnerReference{OwnerReference(c)})
		list = append(list, withUserMetadata(claim, t.ObjectMeta).Object)
	}
	return list, nil
}

// volumeRequest returns the requested size of the data volume in bytes.
func volumeRequest(c *mocov1beta2.MySQLCluster) int64 {
	for _, t := range c.Spec.VolumeClaimTemplates {
		if t.Name == mocov1beta2.DataClaim {
			return t.Spec.Resources.Requests.Storage().Value()
		}
	}
	return 0
}

func isClaimLabelled(set *appsv1.StatefulSet, name string) bool {
	return set != nil && slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(claim corev1.PersistentVolumeClaim) bool {
		return claim.Name == name && claim.Labels[mocov1beta2.CreatedByLabel] != ""
	})
}

// ContentHash is a hash of an object's fields that users and controllers set.
type ContentHash [sha256.Size]byte

// HashContent hashes an object without its status and without the metadata that the API server manages.
func HashContent(u *unstructured.Unstructured) ContentHash {
	c := u.DeepCopy()
	unstructured.RemoveNestedField(c.Object, "status")
	for _, bookkeeping := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp"} {
		unstructured.RemoveNestedField(c.Object, "metadata", bookkeeping)
	}
	text, err := json.Marshal(c.Object)
	if err != nil {
		return sha256.Sum256([]byte(fmt.Sprint(c.Object))) // The content cannot be encoded as JSON. Maps are printed in sorted order.
	}
	return sha256.Sum256(text)
}
