// SPDX-License-Identifier: Apache-2.0

// Package provisioning decides which objects a MySQLCluster consists of, which of them have to be written, and when one of
// its Pods may be replaced. It is pure.
package provisioning

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// Observed is what a decision about the objects of a cluster looks at.
type Observed struct {
	Cluster *mocov1beta2.MySQLCluster
	// NeedsPasswords says that the cluster's Secret is missing or not complete. Nothing is built without it.
	NeedsPasswords bool
	// NeedsCertificate says that Torpor's own certificate for the servers is missing or has to be renewed.
	NeedsCertificate bool
	// Desired are the objects that the cluster should have.
	Desired DesiredObjects
	// Objects are the desired objects in the order in which they are written, each with what is known of the live one.
	Objects []ObjectState
	// ConfigMaps are the configurations that there are, and UsedConfigMaps the names of those that Pods were made with.
	ConfigMaps     []*unstructured.Unstructured
	UsedConfigMaps []string
	// StatefulSet is the one that there is; nil if there is none.
	StatefulSet *appsv1.StatefulSet
	// Rollout is what the replacement of Pods depends on.
	Rollout ObservedRollout
	// MayEndStop says that reconciliation is stopped, that the time of the stop is over, and that the status says so.
	MayEndStop bool
	// Problems are what only a user can mend, and Err what may mend itself.
	Problems []string
	Err      error
}

// ObjectState compares one desired object with the live one, without comparing the two: the API server fills in defaults
// and writes quantities its own way, so that a live object never equals what was applied.
type ObjectState struct {
	Desired *unstructured.Unstructured
	// AppliedHash is of what was applied last, ResultHash of what the API server made of it, and LiveHash of what is there
	// now. The zero value is that of no object.
	AppliedHash, ResultHash, LiveHash ContentHash
}

// NeedsApply reports whether the object was never applied as it is desired, or was changed since.
func (s ObjectState) NeedsApply() bool {
	return s.AppliedHash != HashContent(s.Desired) || s.LiveHash != s.ResultHash
}

// ChangeSet is the plan of a pass. Other features have one effect a pass; here one pass writes all objects that differ,
// because most of them are of use only together. Only the first part that is not empty is carried out: the Secret, then the
// objects to apply and the volumes that grow, then what to prune, then a step of the rollout.
type ChangeSet struct {
	// EndsStop says that reconciliation goes on, because the time of its stop is over.
	EndsStop bool
	// CompletesPasswords says that the Secret gets what it lacks.
	CompletesPasswords bool
	// RenewsCertificate says that the servers get a certificate.
	RenewsCertificate bool
	// Apply are all objects that differ, in the order in which they are written.
	Apply []*unstructured.Unstructured
	// Grow are volumes that grow. After their claims the StatefulSet is deleted, without its Pods, and applied again by the next pass.
	Grow []VolumeGrowth
	// Prune are the configurations that nothing uses any more.
	Prune []*unstructured.Unstructured
	// Rollout is the next step of the replacement of Pods.
	Rollout RolloutPlan
	// OverruledSettings are the user's settings that are not heeded, sorted.
	OverruledSettings []string
	// Problems and Err are those of the observation. With any of them nothing is carried out.
	Problems []string
	Err      error
}

// IsNotEmpty reports whether there is anything to write.
func (s ChangeSet) IsNotEmpty() bool {
	return s.Err == nil && len(s.Problems) == 0 && (s.EndsStop || s.CompletesPasswords || s.RenewsCertificate || s.changesObjects() || s.touchesPod())
}

// RollsOut reports whether the step of the rollout is what is carried out.
func (s ChangeSet) RollsOut() bool {
	return s.IsNotEmpty() && !s.EndsStop && !s.CompletesPasswords && !s.RenewsCertificate && !s.changesObjects()
}

func (s ChangeSet) changesObjects() bool { return len(s.Apply)+len(s.Grow)+len(s.Prune) > 0 }

func (s ChangeSet) touchesPod() bool {
	_, idle := s.Rollout.Action.(Nothing)
	return !idle
}

// Decide says what a pass writes. A stop of reconciliation comes before everything else.
func Decide(seen Observed) ChangeSet {
	if seen.Cluster.ReconciliationStopped() {
		return ChangeSet{EndsStop: seen.MayEndStop, Rollout: RolloutPlan{Rule: "reconciliation is stopped", Action: Nothing{}}}
	}
	changes := ChangeSet{
		CompletesPasswords: seen.NeedsPasswords, RenewsCertificate: seen.NeedsCertificate, Rollout: DecideRollout(seen.Rollout),
		OverruledSettings: seen.Desired.OverruledSettings, Problems: seen.Problems, Err: seen.Err,
	}
	if changes.Err != nil || len(changes.Problems) > 0 || changes.CompletesPasswords || changes.RenewsCertificate {
		// Nothing is known of what is desired, so that nothing may be taken for superfluous either.
		return changes
	}
	changes.Grow, _ = ListVolumeGrowth(seen.StatefulSet, seen.Desired.StatefulSet)
	isReplaced := len(changes.Grow) > 0 || seen.StatefulSet != nil && !seen.StatefulSet.DeletionTimestamp.IsZero()
	for _, object := range seen.Objects {
		// A StatefulSet takes no other templates of claims; the one after it does.
		if object.NeedsApply() && (!isReplaced || object.Desired != seen.Desired.StatefulSet) {
			changes.Apply = append(changes.Apply, object.Desired)
		}
	}
	if !changes.changesObjects() {
		changes.Prune = unusedConfigMaps(seen)
	}
	return changes
}

// unusedConfigMaps are the older configurations that no Pod was made with.
func unusedConfigMaps(seen Observed) []*unstructured.Unstructured {
	// Before the StatefulSet controller has seen the newest template it may still make a Pod with the configuration before.
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
