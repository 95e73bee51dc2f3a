// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
)

// maxServerIDBase leaves room for the ordinals.
const maxServerIDBase = 1 << 30

// setDefaults fills in what a webhook would: the finalizer and the server ids. It reports whether there was anything to do.
func (c Controller) setDefaults(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (bool, error) {
	after := cluster.DeepCopy()
	added := controllerutil.AddFinalizer(after, mocov1beta2.Finalizer)
	if after.Spec.ServerIDBase == 0 {
		n, err := rand.Int(rand.Reader, big.NewInt(maxServerIDBase))
		if err != nil {
			return false, fmt.Errorf("choose server ids: %w", err)
		}
		after.Spec.ServerIDBase, added = int32(n.Int64())+1, true
	}
	if !added {
		return false, nil
	}
	return true, c.patchCluster(ctx, cluster, after)
}

// patchCluster writes the object itself. That somebody else has written it is no error; the next pass looks again.
func (c Controller) patchCluster(ctx context.Context, before, after *mocov1beta2.MySQLCluster) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	err := c.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("complete the cluster: %w", err)
	}
	return nil
}

// isCurrent says whether the object is still what the decision was made from, past any cache. Nothing is done behind the
// back of who stops reconciliation.
func (c Controller) isCurrent(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var live mocov1beta2.MySQLCluster
	err := c.live.Get(ctx, client.ObjectKeyFromObject(cluster), &live)
	if k8serrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the cluster: %w", err)
	}
	return live.ResourceVersion == cluster.ResourceVersion, nil
}

// act does one of these: the passwords, all objects that differ, what is superfluous, a step of the rollout.
func (c Controller) act(ctx context.Context, seen *observation, w *changeSet) {
	switch {
	case !w.isNotEmpty():
	case len(w.passwords) > 0:
		w.err = c.addPasswords(ctx, seen, w.passwords)
	case len(w.apply) > 0:
		c.applyObjects(ctx, seen, w)
	case len(w.prune) > 0:
		for _, o := range w.prune {
			w.err = errors.Join(w.err, c.deleteObserved(ctx, o, o.GetUID()))
		}
	default:
		w.err = c.rollOut(ctx, seen, w.rollout.Action)
	}
}

// addPasswords makes the Secret, or adds to it what it lacks. What is there stays as it is.
func (c Controller) addPasswords(ctx context.Context, seen *observation, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	after := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: seen.cluster.Namespace, Name: seen.cluster.ChildName(), Labels: provisioning.SelectorLabels(seen.cluster),
		OwnerReferences: []metav1.OwnerReference{provisioning.OwnerReference(seen.cluster)},
	}}
	if seen.secret != nil {
		after = seen.secret.DeepCopy()
	}
	if after.Data == nil {
		after.Data = map[string][]byte{}
	}
	for _, key := range keys {
		after.Data[key] = []byte(rand.Text())
	}
	var err error
	if seen.secret == nil {
		err = c.client.Create(ctx, after, client.FieldOwner(Name))
	} else {
		err = c.client.Patch(ctx, after, client.MergeFromWithOptions(seen.secret, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name))
	}
	if err != nil && !k8serrors.IsConflict(err) && !k8serrors.IsAlreadyExists(err) {
		return fmt.Errorf("the API server answered %s to the Secret %s", k8serrors.ReasonForError(err), after.Name)
	}
	return nil
}

// applyObjects goes on after a refusal: one object that is wrong must not keep the others from being right.
func (c Controller) applyObjects(ctx context.Context, seen *observation, w *changeSet) {
	for _, o := range w.apply {
		err := c.applyObject(ctx, seen, o)
		switch {
		case err == nil:
		case isRefusal(err):
			w.refused = append(w.refused, describeRefusal(o, err)+refusalHint(o))
		default:
			w.err = errors.Join(w.err, errors.New(describeRefusal(o, err)))
		}
	}
}

func (c Controller) applyObject(ctx context.Context, seen *observation, wanted *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	became := wanted.DeepCopy()
	err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(became), client.FieldOwner(Name), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	c.applied.recordApplied(client.ObjectKeyFromObject(seen.cluster), wanted, became)
	return nil
}

// refusalHint says what to do about a refusal that has a known reason.
func refusalHint(o *unstructured.Unstructured) string {
	if o.GetKind() != "StatefulSet" {
		return ""
	}
	return "; correct the spec; if its volumeClaimTemplates have changed, which no StatefulSet allows, run: " +
		"kubectl delete statefulset --cascade=orphan -n " + o.GetNamespace() + " " + o.GetName()
}

// rollOut touches the Pod that was observed, and none that has taken its name since.
func (c Controller) rollOut(ctx context.Context, seen *observation, do provisioning.RolloutAction) error {
	switch do := do.(type) {
	case provisioning.Nothing:
		return nil
	case provisioning.ReplacePod:
		pod := seen.pods[do.Ordinal]
		return c.deleteObserved(ctx, pod, pod.UID)
	case provisioning.RequestSwitchover:
		return c.requestSwitchover(ctx, seen.pods[do.Ordinal])
	}
	return nil
}

func (c Controller) requestSwitchover(ctx context.Context, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]any{mocov1beta2.DemoteAnnotation: "true"},
	}})
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if err := c.client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); ignoreChangedObject(err) != nil {
		return fmt.Errorf("ask for a switchover: %w", err)
	}
	return nil
}

func (c Controller) deleteObserved(ctx context.Context, obj client.Object, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	err := c.client.Delete(ctx, obj, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if ignoreChangedObject(err) != nil {
		return fmt.Errorf("delete %s: %w", obj.GetName(), err)
	}
	return nil
}

// ignoreChangedObject forgives that the object is not the one that was observed.
func ignoreChangedObject(err error) error {
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return nil
	}
	return err
}
