// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// Namespace is the namespace of OpenShift's MachineSets and MachineAutoscalers.
const Namespace = "openshift-machine-api"

// API versions and kinds in the target cluster.
const (
	MachineSetKind     = "MachineSet"
	MachineSetVersion  = "machine.openshift.io/v1beta1"
	MachineSetResource = "machinesets"
	AutoscalerKind     = "MachineAutoscaler"
	AutoscalerVersion  = "autoscaling.openshift.io/v1beta1"
	AutoscalerResource = "machineautoscalers"
)

const (
	// defaultReplicas is Hive's default.
	defaultReplicas = 1
	// platformsScalingFromZero are the platforms whose autoscaler can scale a MachineSet up from zero machines.
	platformsScalingFromZero = "aws azure gcp openstack"
)

// Change is a change to one object in the target cluster.
type Change struct {
	Name string
	// Manifest is applied with server-side apply.
	Manifest []byte
	// Differences describes the change for users. It is empty if no difference can be seen before the change is
	// applied.
	Differences []string
}

// Changes make a cluster match a pool. MachineAutoscalers are deleted before the number of replicas is set, and
// applied after it.
type Changes struct {
	// DeleteAutoscalers are the names of MachineAutoscalers to delete.
	DeleteAutoscalers []string
	// MachineSets has one change for every MachineSet of the pool, because it cannot be determined in advance which
	// fields server-side apply removes.
	MachineSets []Change
	Autoscalers []Change
	// Before and After are the MachineSets before and after the changes, in the order of MachineSets. Unchanged
	// MachineSets are included.
	Before, After []hivev1.MachineSetStatus
}

// PlanChanges distributes a pool's replicas over its MachineSets. hasAutoscalers reports whether the cluster serves
// the MachineAutoscaler API.
func PlanChanges(job *Job, sets []MachineSet, autoscalers []Autoscaler, hasAutoscalers bool) (Changes, *Refusal) {
	sets = slices.DeleteFunc(slices.Clone(sets), func(set MachineSet) bool { return set.IsDeleting || !job.Owns(&set) })
	slices.SortFunc(sets, func(a, b MachineSet) int { return cmp.Compare(a.Name, b.Name) })
	changes := Changes{Before: []hivev1.MachineSetStatus{}}
	for i := range min(len(sets), MaxMachineSets) {
		changes.Before = append(changes.Before, sets[i].status(job.limitsOf(i, len(sets))))
	}
	if refusal := refuse(job, len(sets), hasAutoscalers); refusal != nil {
		return changes, refusal
	}
	for i := range sets {
		set, limits, after := &sets[i], job.limitsOf(i, len(sets)), changes.Before[i]
		after.Replicas = limits.minimum
		if set.Replicas != nil {
			after.Replicas = min(max(*set.Replicas, limits.minimum), limits.maximum)
		}
		changes.MachineSets, changes.After = append(changes.MachineSets, changeMachineSet(job, set, after.Replicas)), append(changes.After, after)
	}
	changes.planAutoscalers(job, autoscalers)
	return changes, nil
}

func refuse(job *Job, found int, hasAutoscalers bool) *Refusal {
	name, scaling := job.Spec.Name, job.Spec.Autoscaling
	switch {
	case found == 0:
		return &Refusal{hivev1.NoMachineSetsReason, fmt.Sprintf("Expected MachineSets in %s that have the label %s: %s or the name %s-%s-ZONE, found none; "+
			"create one: Torpor does not create MachineSets", Namespace, hivev1.MachinePoolNameLabel, name, job.InfraID, name)}
	case found > MaxMachineSets:
		return &Refusal{hivev1.TooManyMachineSetsReason, fmt.Sprintf("Expected at most %d MachineSets of one pool, found %d; divide them among several pools", MaxMachineSets, found)}
	case scaling == nil:
		return nil
	case !hasAutoscalers:
		return &Refusal{hivev1.NoMachineAPIReason, "Expected the cluster to serve MachineAutoscalers, found that it does not; use spec.replicas"}
	case int(scaling.MinReplicas) < found && !canScaleFromZero(job.Spec.Platform.Raw):
		return &Refusal{hivev1.MinReplicasTooSmallReason, fmt.Sprintf("Expected spec.autoscaling.minReplicas to be at least %d, one for each MachineSet, found %d", found, scaling.MinReplicas)}
	default:
		return nil
	}
}

// canScaleFromZero reports whether the platform of a pool is one of platformsScalingFromZero.
func canScaleFromZero(platform []byte) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(platform, &fields) != nil {
		return false
	}
	return slices.ContainsFunc(strings.Fields(platformsScalingFromZero), func(name string) bool { return fields[name] != nil })
}

// replicaLimits limits the replicas of one MachineSet.
type replicaLimits struct{ minimum, maximum int32 }

// limitsOf returns the replica limits of one of count MachineSets: its share of the pool's replicas, or of the
// minimum and maximum of the pool's autoscaling. As in Hive, the first MachineSets get one more replica each until
// the remainder of the division is used up.
func (j *Job) limitsOf(index, count int) replicaLimits {
	share := func(total int64) int32 {
		part := total / int64(count)
		if int64(index) < total%int64(count) {
			part++
		}
		if part < 0 || part > maxReplicas {
			return 0 // Decide has already refused such a pool.
		}
		return int32(part)
	}
	if scaling := j.Spec.Autoscaling; scaling != nil {
		least := share(int64(scaling.MinReplicas))
		return replicaLimits{least, max(share(int64(scaling.MaxReplicas)), least)}
	}
	exact := int64(defaultReplicas)
	if j.Spec.Replicas != nil {
		exact = *j.Spec.Replicas
	}
	return replicaLimits{share(exact), share(exact)}
}

func (s *MachineSet) status(limits replicaLimits) hivev1.MachineSetStatus {
	status := hivev1.MachineSetStatus{Name: s.Name, ReadyReplicas: s.ReadyReplicas, MinReplicas: limits.minimum, MaxReplicas: limits.maximum}
	if s.Replicas != nil {
		status.Replicas = *s.Replicas
	}
	if s.ErrorReason != "" || s.ErrorMessage != "" {
		status.ErrorReason, status.ErrorMessage = new(s.ErrorReason), new(s.ErrorMessage)
	}
	return status
}

// changeMachineSet returns a change with the UID and resourceVersion that were read. If the MachineSet was changed or
// replaced after the read, the change fails with a conflict. A deleted MachineSet is not recreated. Server-side apply
// removes the labels and taints that were removed from the pool, because the field manager owned them.
func changeMachineSet(job *Job, set *MachineSet, replicas int32) Change {
	change := Change{Name: set.Name}
	if set.Replicas == nil || *set.Replicas != replicas {
		before := "none"
		if set.Replicas != nil {
			before = fmt.Sprint(*set.Replicas)
		}
		change.Differences = append(change.Differences, fmt.Sprintf("replicas from %s to %d", before, replicas))
	}
	template := map[string]any{}
	if labels := job.Spec.Labels; len(labels) > 0 {
		template["metadata"] = map[string]any{"labels": labels}
		for key, value := range labels {
			if found, isThere := set.NodeLabels[key]; !isThere || found != value {
				change.Differences = append(change.Differences, "labels")
				break
			}
		}
	}
	if taints := mergeTaints(job.Spec.Taints); len(taints) > 0 {
		template["taints"] = taints
		if !slices.EqualFunc(taints, set.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }) {
			change.Differences = append(change.Differences, "taints")
		}
	}
	change.Manifest = encode(map[string]any{
		"apiVersion": MachineSetVersion, "kind": MachineSetKind,
		"metadata": map[string]any{
			"name": set.Name, "namespace": Namespace, "uid": set.UID, "resourceVersion": set.ResourceVersion,
			"labels": map[string]string{hivev1.MachinePoolNameLabel: job.Spec.Name},
		},
		"spec": map[string]any{"replicas": replicas, "template": map[string]any{"spec": template}},
	})
	return change
}

// mergeTaints keeps the first of several taints with the same key and effect, as Hive documents.
func mergeTaints(all []corev1.Taint) []corev1.Taint {
	var merged []corev1.Taint
	for _, taint := range all {
		if !slices.ContainsFunc(merged, func(other corev1.Taint) bool { return other.MatchTaint(&taint) }) {
			merged = append(merged, taint)
		}
	}
	return merged
}

// planAutoscalers plans one MachineAutoscaler for each MachineSet that may have machines, if the pool uses autoscaling.
// All other MachineAutoscalers of the pool are deleted. With a fixed number of replicas, all are deleted, because they
// would keep changing the number.
func (c *Changes) planAutoscalers(job *Job, found []Autoscaler) {
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b Autoscaler) int { return cmp.Compare(a.Name, b.Name) })
	wanted := map[string]hivev1.MachineSetStatus{}
	for _, set := range c.After {
		wanted[set.Name] = set
	}
	kept := map[string]Autoscaler{}
	for _, autoscaler := range found {
		set, isOurs := wanted[autoscaler.Target]
		_, isTaken := kept[autoscaler.Target]
		switch {
		case !isOurs && autoscaler.Labels[hivev1.MachinePoolNameLabel] != job.Spec.Name:
		case isOurs && !isTaken && job.Spec.Autoscaling != nil && set.MaxReplicas > 0:
			kept[autoscaler.Target] = autoscaler
		default:
			c.DeleteAutoscalers = append(c.DeleteAutoscalers, autoscaler.Name)
		}
	}
	if job.Spec.Autoscaling == nil {
		return
	}
	for _, set := range c.After {
		if set.MaxReplicas > 0 {
			c.Autoscalers = append(c.Autoscalers, changeAutoscaler(job, set, kept[set.Name]))
		}
	}
}

// changeAutoscaler changes an existing MachineAutoscaler, or creates one if found has no name.
func changeAutoscaler(job *Job, set hivev1.MachineSetStatus, found Autoscaler) Change {
	change := Change{Name: cmp.Or(found.Name, set.Name)}
	if found.Name == "" || found.Min != set.MinReplicas || found.Max != set.MaxReplicas {
		change.Differences = []string{fmt.Sprintf("autoscaling from %d to %d", set.MinReplicas, set.MaxReplicas)}
	}
	change.Manifest = encode(map[string]any{
		"apiVersion": AutoscalerVersion, "kind": AutoscalerKind,
		"metadata": map[string]any{"name": change.Name, "namespace": Namespace, "labels": map[string]string{hivev1.MachinePoolNameLabel: job.Spec.Name}},
		"spec": map[string]any{
			"minReplicas": set.MinReplicas, "maxReplicas": set.MaxReplicas,
			"scaleTargetRef": map[string]any{"apiVersion": MachineSetVersion, "kind": MachineSetKind, "name": set.Name},
		},
	})
	return change
}

// encode encodes values that always have a JSON form.
func encode(manifest map[string]any) []byte {
	text, err := json.Marshal(manifest)
	if err != nil {
		return nil
	}
	return text
}
