// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// Reach limits a ClusterSlumber to the namespaces that it selects, and to objects that no Slumber of their namespace
// selects and no label excludes. A nil Reach has no limits, and is used for Slumbers.
type Reach struct {
	namespaces map[string]bool
	// slumbers maps each namespace to its Slumbers.
	slumbers map[string][]*torporv1alpha1.Slumber
}

// NewReach returns the reach of a ClusterSlumber. Slumbers that are being deleted select nothing.
func NewReach(s *torporv1alpha1.ClusterSlumber, namespaces []metav1.PartialObjectMetadata, slumbers []torporv1alpha1.Slumber) (*Reach, error) {
	selector, err := metav1.LabelSelectorAsSelector(&s.Spec.NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.namespaceSelector: expected valid labels and expressions, found: %w; correct it", err)
	}
	r := &Reach{namespaces: map[string]bool{}, slumbers: map[string][]*torporv1alpha1.Slumber{}}
	for i := range namespaces {
		if n := &namespaces[i]; selector.Matches(labels.Set(n.Labels)) && !isExcluded(n) {
			r.namespaces[n.Name] = true
		}
	}
	for i := range slumbers {
		if other := &slumbers[i]; other.DeletionTimestamp.IsZero() && r.namespaces[other.Namespace] {
			r.slumbers[other.Namespace] = append(r.slumbers[other.Namespace], other)
		}
	}
	return r, nil
}

// Includes reports whether a namespace is within reach.
func (r *Reach) Includes(namespace string) bool { return r.namespaces[namespace] }

// FindWave returns the index of the first wave that selects an object, or -1 if no wave does, or if the object is out
// of reach.
func (r *Reach) FindWave(s *torporv1alpha1.Slumber, kind schema.GroupKind, o metav1.Object) (int, error) {
	if r != nil && (!r.namespaces[o.GetNamespace()] || isExcluded(o)) {
		return -1, nil
	}
	wave, err := FindWave(s, kind, o.GetLabels())
	if r != nil && err == nil && wave >= 0 && slices.ContainsFunc(r.slumbers[o.GetNamespace()], func(other *torporv1alpha1.Slumber) bool { return selects(other, kind, o) }) {
		return -1, nil
	}
	return wave, err
}

// selects reports whether a Slumber, even a suspended one, selects an object of its namespace. A Slumber with an
// invalid selector selects nothing.
func selects(s *torporv1alpha1.Slumber, kind schema.GroupKind, o metav1.Object) bool {
	wave, err := FindWave(s, kind, o.GetLabels())
	return err == nil && wave >= 0
}

func isExcluded(o metav1.Object) bool { return o.GetLabels()[torporv1alpha1.ExcludeLabel] == "true" }

// ViewOf returns a ClusterSlumber as a Slumber without a namespace. The view has the name that the records of its
// stops contain.
func ViewOf(s *torporv1alpha1.ClusterSlumber) *torporv1alpha1.Slumber {
	view := &torporv1alpha1.Slumber{ObjectMeta: s.ObjectMeta, Spec: s.Spec.SlumberSpec, Status: s.Status}
	view.Name = torporv1alpha1.ClusterSlumberPrefix + s.Name
	return view
}
