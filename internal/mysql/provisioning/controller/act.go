// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// applyError describes why a pass did not make all its changes.
type applyError struct {
	// problems lists errors that only a user can fix.
	problems []string
	// err is an error that a retry may fix; it is not nil.
	err error
}

func (f *applyError) Error() string { return f.err.Error() }

func (f *applyError) Unwrap() error { return f.err }

// newFailure returns nil if there is no problem and no error. If there are only problems, which only a user can fix, it
// returns a RefusedError, which is not retried immediately.
func newFailure(problems []string, err error) error {
	switch {
	case err != nil:
		return &applyError{problems, err}
	case len(problems) > 0:
		return &reconcile.RefusedError{Message: joinProblems(problems, nil)}
	}
	return nil
}

// act carries out the first non-empty part of the change set.
func (c Controller) act(ctx context.Context, seen observation, changes provisioning.ChangeSet) error {
	if !changes.IsNotEmpty() {
		return newFailure(changes.Problems, changes.Err)
	}
	if changes.EndsStop { // No check precedes this patch, because the patch requires the observed resource version.
		after := seen.Cluster.DeepCopy()
		for _, name := range mysqlswitches.ReconciliationSwitch().Annotations() {
			delete(after.Annotations, name)
		}
		return newFailure(nil, reconcile.PatchObserved(ctx, c.client, seen.Cluster, after, Name))
	}
	// A stop may have been requested after the MySQLCluster was read. While reconciliation is stopped, nothing may be
	// written.
	if err := reconcile.RequireUnchanged(ctx, c.live, seen.Cluster, &mocov1beta2.MySQLCluster{}); err != nil {
		return newFailure(nil, err)
	}
	switch {
	case changes.CompletesPasswords:
		// ErrStale starts the next pass, which creates the objects; this pass reports nothing.
		return cmp.Or(newFailure(nil, c.addPasswords(ctx, seen)), error(reconcile.ErrStale))
	case changes.RenewsCertificate:
		return cmp.Or(newFailure(nil, c.renewCertificate(ctx, seen)), error(reconcile.ErrStale))
	case changes.Claims.IsPossible() || len(changes.Apply) > 0:
		if err := c.applyObjects(ctx, seen, changes.Apply); err != nil || !changes.Claims.IsPossible() {
			return err
		}
		return c.replaceSet(ctx, seen, changes.Claims)
	case len(changes.Prune) > 0:
		var err error
		for _, o := range changes.Prune {
			err = errors.Join(err, reconcile.DeleteObserved(ctx, c.client, o))
		}
		return newFailure(nil, err)
	}
	if changes.Rollout.TakesTurn && !c.turns.take(client.ObjectKeyFromObject(seen.Cluster)) {
		return reconcile.ErrStale // Another cluster has taken the turn.
	}
	return newFailure(nil, c.rollOut(ctx, seen, changes.Rollout.Action))
}

// addPasswords creates the Secret, or adds the missing passwords to it. It does not change existing passwords.
func (c Controller) addPasswords(ctx context.Context, seen observation) error {
	passwords := map[string][]byte{}
	if seen.secret != nil {
		maps.Copy(passwords, seen.secret.Data)
	}
	for _, key := range mysqlusers.MissingPasswordKeys(passwords) {
		passwords[key] = []byte(rand.Text())
	}
	return c.writeSecret(ctx, seen.Cluster, seen.secret, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: seen.Cluster.ChildName(), Annotations: map[string]string{mocov1beta2.SecretVersionAnnotation: mocov1beta2.SecretVersion},
		},
		Data: passwords,
	})
}

func (c Controller) renewCertificate(ctx context.Context, seen observation) error {
	return c.writeSecret(ctx, seen.Cluster, seen.tlsSecret, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: seen.Cluster.TLSSecretName()}, Data: seen.certificate,
	})
}

// writeSecret creates a cluster's Secret, or updates the data and annotations of the observed Secret.
func (c Controller) writeSecret(ctx context.Context, cluster *mocov1beta2.MySQLCluster, observed, wanted *corev1.Secret) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	var err error
	if observed == nil {
		wanted.Namespace, wanted.Labels = cluster.Namespace, provisioning.SelectorLabels(cluster)
		wanted.OwnerReferences = []metav1.OwnerReference{provisioning.OwnerReference(cluster)}
		err = c.client.Create(ctx, wanted, client.FieldOwner(Name))
	} else {
		after := observed.DeepCopy()
		after.Data = wanted.Data
		for key, value := range wanted.Annotations {
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, key, value)
		}
		err = reconcile.PatchObserved(ctx, c.client, observed, after, Name)
	}
	if err != nil && !errors.Is(err, reconcile.ErrStale) && !k8serrors.IsConflict(err) && !k8serrors.IsAlreadyExists(err) {
		// The API server's message may contain the submitted data.
		return fmt.Errorf("the API server returned %s for the Secret %s", k8serrors.ReasonForError(err), wanted.Name)
	}
	return nil
}

// applyObjects continues after a rejected object, so an invalid object does not prevent the update of the other
// objects.
func (c Controller) applyObjects(ctx context.Context, seen observation, objects []*unstructured.Unstructured) error {
	var problems []string
	var failed error
	for _, o := range objects {
		err := c.applyObject(ctx, seen, o)
		switch {
		case err == nil:
		case isRefusal(err):
			problems = append(problems, describeRefusal(o, err)+refusalHint(o))
		default:
			failed = errors.Join(failed, errors.New(describeRefusal(o, err)))
		}
	}
	return newFailure(problems, failed)
}

func (c Controller) applyObject(ctx context.Context, seen observation, desired *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	if err := c.takeFieldsOver(ctx, seen.Cluster, desired); err != nil {
		return err
	}
	became := desired.DeepCopy()
	err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(became), client.FieldOwner(Name), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	c.applied.recordApplied(client.ObjectKeyFromObject(seen.Cluster), desired, became)
	return nil
}

// takeFieldsOver transfers the ownership of an object's fields from MOCO to Torpor before Torpor first applies the
// object. Otherwise fields that only MOCO's Pods need would remain, and the API server would reject their combination
// with Torpor's fields.
func (c Controller) takeFieldsOver(ctx context.Context, cluster *mocov1beta2.MySQLCluster, desired *unstructured.Unstructured) error {
	applied := c.applied.stateOf(client.ObjectKeyFromObject(cluster), desired)
	if applied.AppliedHash != (provisioning.ContentHash{}) || !c.Guard.HasUpstreamWritten(cluster) {
		return nil
	}
	return c.Guard.TakeFieldsOver(ctx, c.client, desired, Name)
}

// isRefusal reports whether only a user can fix an error.
func isRefusal(err error) bool {
	status, ok := errors.AsType[*k8serrors.StatusError](err)
	// For an apply with an unknown field, the API server returns code 500 without a reason.
	unknownField := ok && status.ErrStatus.Code == http.StatusInternalServerError && status.ErrStatus.Reason == metav1.StatusReasonUnknown
	return k8serrors.IsInvalid(err) || k8serrors.IsBadRequest(err) || unknownField
}

// describeRefusal describes the API server's response, without secrets.
func describeRefusal(o *unstructured.Unstructured, err error) string {
	if o.GetKind() != "Secret" && isRefusal(err) {
		return fmt.Sprintf("the API server refuses the %s: %v", describeObject(o), err)
	}
	return fmt.Sprintf("the API server returned %s for the %s", k8serrors.ReasonForError(err), describeObject(o))
}

// refusalHint returns the next step after a StatefulSet was rejected, or "" for other objects.
func refusalHint(o *unstructured.Unstructured) string {
	if o.GetKind() != "StatefulSet" {
		return ""
	}
	return "; correct the spec; if its volumeClaimTemplates have changed, which no StatefulSet allows, run: " +
		"kubectl delete statefulset --cascade=orphan -n " + o.GetNamespace() + " " + o.GetName()
}

// rollOut changes only the observed Pod, and never a newer Pod with the same name.
func (c Controller) rollOut(ctx context.Context, seen observation, action provisioning.RolloutAction) error {
	switch action := action.(type) {
	case provisioning.Nothing:
		return nil
	case provisioning.ReplacePod:
		return reconcile.DeleteObserved(ctx, c.client, seen.pods[action.Ordinal])
	case provisioning.RequestSwitchover:
		return c.requestSwitchover(ctx, seen.pods[action.Ordinal])
	}
	return nil
}

func (c Controller) requestSwitchover(ctx context.Context, pod *corev1.Pod) error {
	// The UID in the patch makes the API server reject the patch for a newer Pod. A precondition on the resource
	// version would be too strict, because the kubelet writes the Pod too.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]any{mocov1beta2.DemoteAnnotation: "true"},
	}})
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	err = c.client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	if err != nil && !k8serrors.IsConflict(err) && !k8serrors.IsNotFound(err) {
		return fmt.Errorf("request a switchover: %w", err)
	}
	return nil
}

// finalizeRetry is the interval at which the finalizer checks whether the Pods are deleted.
const finalizeRetry = 2 * time.Second

// finalize deletes the StatefulSet of a cluster that is being deleted. It returns the time until the next check, or
// zero once the Pods are deleted, too. The servers have to stop before the garbage collector may delete the objects
// that they need. A stop does not delay the deletion of a cluster.
func (c Controller) finalize(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (time.Duration, error) {
	// The objects are read from the API server. If the finalizer were removed because of an outdated cache, Pods would
	// remain without their configuration.
	set, err := readStatefulSet(ctx, c.live, cluster)
	if err != nil {
		return 0, err
	}
	if set != nil {
		return finalizeRetry, reconcile.DeleteObserved(ctx, c.client, set)
	}
	pods, err := listPods(ctx, c.live, cluster)
	if err != nil {
		return 0, err
	}
	if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p != nil }) {
		return finalizeRetry, nil
	}
	return 0, nil
}

// appliedHashes records the applied objects and the API server's responses, to avoid requests that change nothing.
// After a restart, the manager applies every object once. This changes no object that is up to date.
type appliedHashes struct {
	mu        sync.Mutex
	byCluster map[types.NamespacedName]map[string]appliedHash
}

// appliedHash holds the hashes of an applied object and of the API server's response.
type appliedHash struct{ sent, became provisioning.ContentHash }

func newAppliedHashes() *appliedHashes {
	return &appliedHashes{byCluster: map[types.NamespacedName]map[string]appliedHash{}}
}

// stateOf returns the recorded state for a desired object, without the live object.
func (a *appliedHashes) stateOf(cluster types.NamespacedName, desired *unstructured.Unstructured) provisioning.ObjectState {
	a.mu.Lock()
	defer a.mu.Unlock()
	applied := a.byCluster[cluster][describeObject(desired)]
	return provisioning.ObjectState{Desired: desired, AppliedHash: applied.sent, ResultHash: applied.became}
}

func (a *appliedHashes) recordApplied(cluster types.NamespacedName, sent, became *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byCluster[cluster] == nil {
		a.byCluster[cluster] = map[string]appliedHash{}
	}
	a.byCluster[cluster][describeObject(sent)] = appliedHash{provisioning.HashContent(sent), provisioning.HashContent(became)}
}

func (a *appliedHashes) forgetCluster(cluster types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byCluster, cluster)
}

func describeObject(u *unstructured.Unstructured) string { return u.GetKind() + " " + u.GetName() }
