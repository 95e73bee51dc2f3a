// SPDX-License-Identifier: Apache-2.0

// Package provisioning decides which objects a MySQLCluster has, which of them must be written, and when its Pods may
// be replaced. It is pure.
package provisioning

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// Observed is the input for a decision about the objects of a cluster.
type Observed struct {
	Cluster *mocov1beta2.MySQLCluster
	// NeedsPasswords is true if the cluster's Secret is missing, incomplete or without its version. No object is built
	// without the passwords.
	NeedsPasswords bool
	// NeedsCertificate is true if the servers use a certificate that Torpor issues, and this certificate is missing or
	// must be renewed.
	NeedsCertificate bool
	// Desired holds the desired objects of the cluster.
	Desired DesiredObjects
	// Objects contains the desired objects in the order of writing, with the hashes that are compared.
	Objects []ObjectState
	// ConfigMaps contains the existing ConfigMaps of the cluster. UsedConfigMaps contains the names of the ConfigMaps
	// that its Pods mount.
	ConfigMaps     []*unstructured.Unstructured
	UsedConfigMaps []string
	// StatefulSet is the live StatefulSet. It is nil if it does not exist.
	StatefulSet *appsv1.StatefulSet
	// Rollout is the input for the decision about replacing Pods.
	Rollout ObservedRollout
	// MayEndStop is true if reconciliation is stopped, the stop has expired, and the status has recorded that.
	MayEndStop bool
	// Problems lists errors that only a user can fix. Err is an error that a retry may fix.
	Problems []string
	Err      error
}

// ObjectState contains the hashes by which a desired object is compared with the live one. A direct comparison is
// impossible: the API server sets defaults and normalizes quantities, so a live object never equals the applied object.
type ObjectState struct {
	Desired *unstructured.Unstructured
	// AppliedHash is the hash of the object that was last applied, ResultHash is that of the API server's response, and
	// LiveHash is that of the live object. The zero hash means that there is no object.
	AppliedHash, ResultHash, LiveHash ContentHash
}

// NeedsApply reports whether the desired object was never applied, or the live object has been changed since.
func (s ObjectState) NeedsApply() bool {
	return s.AppliedHash != HashContent(s.Desired) || s.LiveHash != s.ResultHash
}

// ChangeSet is the plan of a pass. In other features a pass performs one action. Here a pass writes all objects that
// differ, because most of them are useful only together. Only the first non-empty part is carried out, in the order of
// the fields; Apply and Claims are one part.
type ChangeSet struct {
	// EndsStop is true if reconciliation resumes because its stop has expired.
	EndsStop bool
	// CompletesPasswords is true if the pass adds missing passwords to the Secret.
	CompletesPasswords bool
	// RenewsCertificate is true if the servers get a new certificate.
	RenewsCertificate bool
	// Apply holds all objects that differ, in the order of writing.
	Apply []*unstructured.Unstructured
	// Claims holds the changes to volumes and claim templates. After the claims have changed, the StatefulSet is
	// deleted without its Pods, and the next pass creates it with the new templates.
	Claims ClaimChange
	// Prune contains the unused ConfigMaps to delete.
	Prune []*unstructured.Unstructured
	// Rollout is the next step of replacing Pods.
	Rollout RolloutPlan
	// OverruledSettings lists the user's settings that are ignored. Those in the key _include come last.
	OverruledSettings []string
	// Problems and Err describe errors of the observation. If either is set, no action is carried out.
	Problems []string
	Err      error
}

// IsNotEmpty reports whether there is anything to write.
func (s ChangeSet) IsNotEmpty() bool {
	return s.Err == nil && len(s.Problems) == 0 && (s.EndsStop || s.CompletesPasswords || s.RenewsCertificate || s.changesObjects() || s.touchesPod())
}

// RollsOut reports whether the pass carries out a step of the rollout.
func (s ChangeSet) RollsOut() bool {
	return s.IsNotEmpty() && !s.EndsStop && !s.CompletesPasswords && !s.RenewsCertificate && !s.changesObjects()
}

func (s ChangeSet) changesObjects() bool {
	return s.Claims.IsPossible() || len(s.Apply)+len(s.Prune) > 0
}

func (s ChangeSet) touchesPod() bool {
	_, idle := s.Rollout.Action.(Nothing)
	return !idle
}

// Decide returns the writes of a pass. A stop of reconciliation takes precedence over everything else.
func Decide(seen Observed) ChangeSet {
	if seen.Cluster.ReconciliationStopped() {
		return ChangeSet{EndsStop: seen.MayEndStop, Rollout: RolloutPlan{Rule: "reconciliation is stopped", Action: Nothing{}}}
	}
	changes := ChangeSet{
		CompletesPasswords: seen.NeedsPasswords, RenewsCertificate: seen.NeedsCertificate, Rollout: DecideRollout(seen.Rollout),
		OverruledSettings: seen.Desired.OverruledSettings, Problems: seen.Problems, Err: seen.Err,
	}
	if changes.Err != nil || len(changes.Problems) > 0 || changes.CompletesPasswords || changes.RenewsCertificate {
		// The desired objects are unknown, so no object can be considered unused.
		return changes
	}
	changes.Claims = CompareClaims(seen.StatefulSet, seen.Desired.StatefulSet)
	isReplaced := changes.Claims.IsPossible() || seen.StatefulSet != nil && !seen.StatefulSet.DeletionTimestamp.IsZero()
	for _, object := range seen.Objects {
		// The claim templates of a StatefulSet are immutable. If they change, the new StatefulSet gets the new
		// templates.
		if object.NeedsApply() && (!isReplaced || object.Desired != seen.Desired.StatefulSet) {
			changes.Apply = append(changes.Apply, object.Desired)
		}
	}
	if !changes.changesObjects() {
		changes.Prune = unusedConfigMaps(seen)
	}
	return changes
}

// unusedConfigMaps returns the older ConfigMaps that no Pod mounts.
func unusedConfigMaps(seen Observed) []*unstructured.Unstructured {
	// Until the StatefulSet controller has observed the newest template, it may create a Pod with the previous
	// ConfigMap.
	if !seen.Rollout.RevisionKnown {
		return nil
	}
	used := map[string]bool{seen.Desired.ConfigMapName: true}
	for _, name := range seen.UsedConfigMaps {
		used[name] = true
	}
	var unused []*unstructured.Unstructured
	for _, config := range seen.ConfigMaps {
		if !used[config.GetName()] && config.GetDeletionTimestamp().IsZero() {
			unused = append(unused, config)
		}
	}
	return unused
}
