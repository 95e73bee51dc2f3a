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

// work is what a pass has to do, and what became of it.
type work struct {
	// passwords are the keys that the Secret lacks. The rest waits for them.
	passwords []string
	// apply differs from what is there, in this order.
	apply []*unstructured.Unstructured
	// prune are ConfigMaps that nobody uses any more.
	prune []*unstructured.Unstructured
	// rollout is carried out only if there is nothing else to do.
	rollout provisioning.Plan
	// overruled are the user's settings that are not heeded.
	overruled []string
	// refused is what only a user can mend, err what may mend itself.
	refused []string
	err     error
}

func (w *work) some() bool {
	return w.err == nil && len(w.refused) == 0 && (len(w.passwords)+len(w.apply)+len(w.prune) > 0 || w.rolls())
}

// rolls says whether a Pod is to be touched.
func (w *work) rolls() bool {
	_, idle := w.rollout.Do.(provisioning.Nothing)
	return !idle
}

// compare finds what differs from what is wanted.
func (c Controller) compare(ctx context.Context, seen *observation) work {
	w := work{err: seen.err, rollout: provisioning.Decide(seen.rollout())}
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
	if w.passwords = provisioning.MissingKeys(passwords); len(w.passwords) > 0 {
		return w
	}
	wanted, err := provisioning.Want(provisioning.Input{Cluster: seen.cluster, Settings: seen.settings, Passwords: passwords})
	w.overruled = wanted.Overruled
	if err != nil {
		w.refused = append(w.refused, err.Error())
		return w
	}
	for _, o := range append(wanted.Objects, wanted.StatefulSet) {
		same, err := c.same(ctx, seen, o)
		if err != nil {
			w.err = err
			return w
		}
		if !same {
			w.apply = append(w.apply, o)
		}
	}
	if len(w.apply) == 0 {
		w.prune, w.err = c.unused(ctx, seen, wanted.Config)
	}
	return w
}

// same says whether an object is what it became when this was applied. What the cache shows differently is looked up
// once more: the cache may be behind.
func (c Controller) same(ctx context.Context, seen *observation, wanted *unstructured.Unstructured) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if !c.ledger.knows(client.ObjectKeyFromObject(seen.cluster), wanted) {
		return false, nil
	}
	readers := []client.Reader{c.own, c.live}
	if wanted.GetKind() == "Secret" {
		readers = readers[1:]
	}
	for _, from := range readers {
		live := empty(wanted.GroupVersionKind())
		err := from.Get(ctx, client.ObjectKeyFromObject(wanted), live)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read the %s: %w", label(wanted), err)
		}
		if err == nil && c.ledger.applied(client.ObjectKeyFromObject(seen.cluster), wanted, live) {
			return true, nil
		}
	}
	return false, nil
}

// unused are the ConfigMaps of older configurations that no Pod was made with.
func (c Controller) unused(ctx context.Context, seen *observation, newest string) ([]*unstructured.Unstructured, error) {
	if seen.set == nil || seen.set.Status.ObservedGeneration < seen.set.Generation {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	err := c.own.List(ctx, list, client.InNamespace(seen.cluster.Namespace), client.MatchingLabels(provisioning.Labels(seen.cluster)))
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

// refusal: only a user can mend it. To a field that it does not know, the API server answers 500 without a reason.
func refusal(err error) bool {
	status, ok := errors.AsType[*k8serrors.StatusError](err)
	unknownField := ok && status.ErrStatus.Code == http.StatusInternalServerError && status.ErrStatus.Reason == metav1.StatusReasonUnknown
	return k8serrors.IsInvalid(err) || k8serrors.IsBadRequest(err) || unknownField
}

// words tells what the API server said, in words that are free of secrets.
func words(o *unstructured.Unstructured, err error) string {
	if o.GetKind() != "Secret" && refusal(err) {
		return fmt.Sprintf("the API server refuses the %s: %v", label(o), err)
	}
	return fmt.Sprintf("the API server answered %s to the %s", k8serrors.ReasonForError(err), label(o))
}
