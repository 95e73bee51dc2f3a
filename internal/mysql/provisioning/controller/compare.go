// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
)

// changeSet is what a pass has to do, and what became of it.
type changeSet struct {
	// passwords are the keys that the Secret lacks. The rest waits for them.
	passwords []string
	// apply differs from what is there, in this order.
	apply []*unstructured.Unstructured
	// prune are ConfigMaps that nobody uses any more.
	prune []*unstructured.Unstructured
	// rollout is carried out only if there is nothing else to do.
	rollout provisioning.RolloutPlan
	// overruled are the user's settings that are not heeded.
	overruled []string
	// refused is what only a user can mend, err what may mend itself.
	refused []string
	err     error
}

func (w *changeSet) isNotEmpty() bool {
	return w.err == nil && len(w.refused) == 0 && (len(w.passwords)+len(w.apply)+len(w.prune) > 0 || w.touchesPod())
}

// touchesPod says whether a Pod is to be touched.
func (w *changeSet) touchesPod() bool {
	_, idle := w.rollout.Action.(provisioning.Nothing)
	return !idle
}

// findChanges finds what differs from what is wanted.
func (c Controller) findChanges(ctx context.Context, seen *observation) changeSet {
	w := changeSet{err: seen.err, rollout: provisioning.DecideRollout(seen.observedRollout())}
	if seen.missing != "" {
		w.refused = append(w.refused, seen.missing)
	}
	if w.err != nil || len(w.refused) > 0 {
		return w
	}
	var passwords map[string][]byte
	if seen.secret != nil {
		passwords = seen.secret.Data
	}
	if w.passwords = provisioning.MissingPasswordKeys(passwords); len(w.passwords) > 0 {
		return w
	}
	wanted, err := provisioning.BuildObjects(provisioning.BuildInput{Cluster: seen.cluster, Settings: seen.settings, Passwords: passwords})
	w.overruled = wanted.OverruledSettings
	if err != nil {
		w.refused = append(w.refused, err.Error())
		return w
	}
	for _, o := range append(wanted.Objects, wanted.StatefulSet) {
		same, err := c.isApplied(ctx, seen, o)
		if err != nil {
			w.err = err
			return w
		}
		if !same {
			w.apply = append(w.apply, o)
		}
	}
	if len(w.apply) == 0 {
		w.prune, w.err = c.unusedConfigMaps(ctx, seen, wanted.ConfigMapName)
	}
	return w
}

// isApplied says whether an object is what it became when this was applied. What the cache shows differently is looked up
// once more: the cache may be behind.
func (c Controller) isApplied(ctx context.Context, seen *observation, wanted *unstructured.Unstructured) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if !c.applied.wasSent(client.ObjectKeyFromObject(seen.cluster), wanted) {
		return false, nil
	}
	readers := []client.Reader{c.children, c.live}
	if wanted.GetKind() == "Secret" {
		readers = readers[1:]
	}
	for _, from := range readers {
		live := newUnstructured(wanted.GroupVersionKind())
		err := from.Get(ctx, client.ObjectKeyFromObject(wanted), live)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read the %s: %w", describeObject(wanted), err)
		}
		if err == nil && c.applied.isUnchanged(client.ObjectKeyFromObject(seen.cluster), wanted, live) {
			return true, nil
		}
	}
	return false, nil
}

// unusedConfigMaps are the ConfigMaps of older configurations that no Pod was made with.
func (c Controller) unusedConfigMaps(ctx context.Context, seen *observation, newest string) ([]*unstructured.Unstructured, error) {
	if seen.statefulSet == nil || seen.statefulSet.Status.ObservedGeneration < seen.statefulSet.Generation {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	err := c.children.List(ctx, list, client.InNamespace(seen.cluster.Namespace), client.MatchingLabels(provisioning.SelectorLabels(seen.cluster)))
	if err != nil {
		return nil, fmt.Errorf("list the ConfigMaps: %w", err)
	}
	used := []string{newest}
	for _, p := range seen.pods {
		if p == nil {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if v.ConfigMap != nil {
				used = append(used, v.ConfigMap.Name)
			}
		}
	}
	var found []*unstructured.Unstructured
	for i := range list.Items {
		o := &list.Items[i]
		ours := strings.HasPrefix(o.GetName(), seen.cluster.ChildName()+".") && metav1.IsControlledBy(o, seen.cluster)
		if ours && !slices.Contains(used, o.GetName()) && o.GetDeletionTimestamp().IsZero() {
			found = append(found, o)
		}
	}
	return found, nil
}

// isRefusal: only a user can mend it. To a field that it does not know, the API server answers 500 without a reason.
func isRefusal(err error) bool {
	status, ok := errors.AsType[*k8serrors.StatusError](err)
	unknownField := ok && status.ErrStatus.Code == http.StatusInternalServerError && status.ErrStatus.Reason == metav1.StatusReasonUnknown
	return k8serrors.IsInvalid(err) || k8serrors.IsBadRequest(err) || unknownField
}

// describeRefusal tells what the API server said, in words that are free of secrets.
func describeRefusal(o *unstructured.Unstructured, err error) string {
	if o.GetKind() != "Secret" && isRefusal(err) {
		return fmt.Sprintf("the API server refuses the %s: %v", describeObject(o), err)
	}
	return fmt.Sprintf("the API server answered %s to the %s", k8serrors.ReasonForError(err), describeObject(o))
}
