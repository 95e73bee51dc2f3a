// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;patch

const (
	// pauseManager is the field manager with which Torpor pauses a Cluster. It distinguishes these pauses from those of
	// other users.
	pauseManager = "torpor-machine-groups"
	// kindRetry is the interval of checking a hub that does not serve Cluster API.
	kindRetry = time.Minute
)

// clusterAPI reads and pauses the Clusters of Cluster API on the hub. The pause stops the controllers of the Cluster's
// MachineDeployments, MachineSets, Machines and MachineHealthChecks, and the controllers of its infrastructure.
type clusterAPI struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock

	mu sync.Mutex
	// missingAt is when the hub was last found not to serve the kind.
	missingAt time.Time
	// refusals are the last refused changes, by ClusterDeployment.
	refusals map[types.NamespacedName]pauseRefusal
}

// pauseRefusal is a change to a Cluster that the hub has refused.
type pauseRefusal struct {
	group  string
	isHold bool
	err    error
}

func newClusterAPI(c client.Client, live client.Reader, clock clock.PassiveClock) *clusterAPI {
	return &clusterAPI{client: c, live: live, clock: clock, refusals: map[types.NamespacedName]pauseRefusal{}}
}

// version returns the served version of the kind; empty if the hub does not serve the kind.
func (a *clusterAPI) version() (string, error) {
	a.mu.Lock()
	missingAt := a.missingAt
	a.mu.Unlock()
	now := a.clock.Now()
	if !missingAt.IsZero() && now.Sub(missingAt) < kindRetry {
		return "", nil
	}
	mapping, err := a.client.RESTMapper().RESTMapping(schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"})
	switch {
	case meta.IsNoMatchError(err):
		a.mu.Lock()
		defer a.mu.Unlock()
		a.missingAt = now
		return "", nil
	case err != nil:
		return "", fmt.Errorf("find the version of Cluster API: %w", err)
	}
	return mapping.GroupVersionKind.Version, nil
}

// find adds the Cluster of a ClusterDeployment to an observation, if there is one. The Cluster is in the same
// namespace. Its name is the identifier of the cluster's machines, such as the infraID, or the name of the
// ClusterDeployment.
func (a *clusterAPI) find(ctx context.Context, seen *clusterObservation) error {
	version, err := a.version()
	if version == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	for _, name := range []string{seen.platform.Machines, seen.name.Name} {
		if name == "" {
			continue
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: version, Kind: "Cluster"})
		err := a.live.Get(ctx, types.NamespacedName{Namespace: seen.name.Namespace, Name: name}, u)
		switch {
		case err == nil && u.GetDeletionTimestamp() == nil:
			seen.cluster = u
			return nil
		case k8serrors.IsNotFound(err), err == nil:
		default:
			return fmt.Errorf("read Cluster %s of Cluster API: %w", name, err)
		}
	}
	return nil
}

// observe adds the Cluster to the observed groups.
func (a *clusterAPI) observe(ctx context.Context, seen *clusterObservation) error {
	err := a.find(ctx, seen)
	if k8serrors.IsForbidden(err) {
		seen.GroupsError = "the manager may not read the Clusters of Cluster API on the hub; grant the manager the verbs get and patch for clusters.cluster.x-k8s.io"
		return nil
	}
	if err != nil {
		return err
	}
	seen.HasReadClusterAPI = true
	u := seen.cluster
	if u == nil {
		return nil
	}
	group := hibernation.NewClusterAPIGroup(u.GetName(), pauseOf(u, seen.Record))
	seen.Groups = append(slices.Clip(seen.Groups), group)
	a.mu.Lock()
	defer a.mu.Unlock()
	isHold := seen.DesiredPowerState == hivev1.PowerStateHibernating
	if r, isRefused := a.refusals[seen.name]; isRefused && r.group == group.Name && r.isHold == isHold && seen.Refusal == nil {
		seen.Refusal = &hibernation.OrderRefusal{
			ObservationError: hibernation.ObservationError{Class: classOfRefusal(r.err), Message: fmt.Sprintf("spec.paused of %s cannot be changed on the hub: %s", group.Name, k8serrors.ReasonForError(r.err))},
			MachineIDs:       []string{group.Name},
		}
	}
	return nil
}

func classOfRefusal(err error) actuator.ErrorClass {
	if k8serrors.IsForbidden(err) || k8serrors.IsInvalid(err) {
		return actuator.PermissionDenied
	}
	return actuator.Other
}

// pauseOf reports whether Torpor or another user has paused a Cluster, according to the field managers of spec.paused.
// If no field manager is known, or if the Cluster was restored from a dump, the record decides.
func pauseOf(u *unstructured.Unstructured, record *hivev1.HibernationRecord) hibernation.PauseState {
	if isPaused, _, err := unstructured.NestedBool(u.Object, "spec", "paused"); err != nil || !isPaused {
		return hibernation.NotPaused
	}
	isRecorded := hibernation.HasRecordedGroup(record, hibernation.NewClusterAPIGroup(u.GetName(), hibernation.NotPaused).Name)
	isOurs, isOfOther := false, false
	for _, entry := range u.GetManagedFields() {
		if ownsPause(entry) {
			isByUs := entry.Manager == pauseManager || isRecorded && isRestoredPause(u, entry, record)
			isOurs, isOfOther = isOurs || isByUs, isOfOther || !isByUs
		}
	}
	switch {
	case isOfOther:
		return hibernation.PausedByOther
	case isOurs || isRecorded:
		return hibernation.PausedByUs
	default:
		return hibernation.PausedByOther
	}
}

// restoreWindow is longer than the difference between the time of an object's creation and that of its field managers.
const restoreWindow = time.Second

// isRestoredPause reports whether a Cluster was created with its pause after the hibernation began, as a restore from a
// dump does. The restore tool then owns the fields.
func isRestoredPause(u *unstructured.Unstructured, entry metav1.ManagedFieldsEntry, record *hivev1.HibernationRecord) bool {
	created := u.GetCreationTimestamp()
	return created.After(record.SleepStartedAt.Time) && entry.Time != nil && entry.Time.Sub(created.Time) <= restoreWindow
}

func ownsPause(entry metav1.ManagedFieldsEntry) bool {
	var fields struct {
		Spec struct {
			Paused *struct{} `json:"f:paused"`
		} `json:"f:spec"`
	}
	return entry.FieldsV1 != nil && json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) == nil && fields.Spec.Paused != nil
}

// change pauses or unpauses a Cluster. It sends the observed resource version, so the hub rejects the change with a
// conflict if the Cluster has changed in between.
func (a *clusterAPI) change(ctx context.Context, seen *clusterObservation, change actuator.GroupChange) error {
	u := seen.cluster
	if u == nil || hibernation.NewClusterAPIGroup(u.GetName(), hibernation.NotPaused).Name != change.Name {
		return nil // The Cluster no longer exists.
	}
	isHold := len(change.Suspend) > 0
	var paused any // Absent and false have the same meaning.
	if isHold {
		paused = true
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion()},
		"spec":     map[string]any{"paused": paused},
	})
	if err != nil {
		return fmt.Errorf("write the pause of Cluster %s: %w", u.GetName(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	log.FromContext(ctx).Info("Changing the pause of a Cluster of Cluster API", "cluster", u.GetName(), "paused", isHold)
	err = a.client.Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(pauseManager))
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.refusals, seen.name)
	if err == nil || k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return nil // The next pass observes the Cluster again.
	}
	a.refusals[seen.name] = pauseRefusal{change.Name, isHold, err}
	return fmt.Errorf("change the pause of Cluster %s: %w", u.GetName(), err)
}

func (a *clusterAPI) forget(cd types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.refusals, cd)
}
