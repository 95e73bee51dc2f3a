// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// TestSchedulesFindFor looks up the schedules of a Deployment in the namespace ns. The Slumber others is in another
// namespace, and the ClusterSlumber many selects all namespaces.
func TestSchedulesFindFor(t *testing.T) {
	t.Parallel()
	spec := torporv1alpha1.SlumberSpec{Waves: []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{Kind: "Deployment"}}}}}
	own := torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "own"}, Spec: spec}
	others := torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "others"}, Spec: spec}
	many := torporv1alpha1.ClusterSlumber{ObjectMeta: metav1.ObjectMeta{Name: "many"}, Spec: torporv1alpha1.ClusterSlumberSpec{SlumberSpec: spec}}
	again := *many.DeepCopy()
	again.Name = "again"
	now := metav1.NewTime(time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC))
	suspended, suspendedMany, deleted, deletedMany := *own.DeepCopy(), *many.DeepCopy(), *own.DeepCopy(), *many.DeepCopy()
	suspended.Spec.Suspend, suspendedMany.Spec.Suspend = true, true
	deleted.DeletionTimestamp, deletedMany.DeletionTimestamp = new(now), new(now)
	invalid := *many.DeepCopy()
	invalid.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Wishes"}}
	for name, row := range map[string]struct {
		slumbers  []torporv1alpha1.Slumber
		ofCluster []torporv1alpha1.ClusterSlumber
		isUnknown bool
		want      []string
	}{
		"a Slumber of another namespace does not apply":                             {slumbers: []torporv1alpha1.Slumber{own, others}, want: []string{"own"}},
		"a Slumber of the namespace applies instead of a ClusterSlumber":            {slumbers: []torporv1alpha1.Slumber{own}, ofCluster: []torporv1alpha1.ClusterSlumber{many}, want: []string{"own"}},
		"two ClusterSlumbers both apply":                                            {slumbers: []torporv1alpha1.Slumber{others}, ofCluster: []torporv1alpha1.ClusterSlumber{many, again}, want: []string{"cluster_many", "cluster_again"}},
		"a suspended Slumber exempts its objects from ClusterSlumbers":              {slumbers: []torporv1alpha1.Slumber{suspended}, ofCluster: []torporv1alpha1.ClusterSlumber{many}},
		"a Slumber that is being deleted exempts no objects":                        {slumbers: []torporv1alpha1.Slumber{deleted}, ofCluster: []torporv1alpha1.ClusterSlumber{many}, want: []string{"cluster_many"}},
		"ClusterSlumbers that are suspended, being deleted or invalid do not apply": {ofCluster: []torporv1alpha1.ClusterSlumber{suspendedMany, deletedMany, invalid}},
		"a ClusterSlumber does not apply to an unknown namespace":                   {ofCluster: []torporv1alpha1.ClusterSlumber{many}, isUnknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespaces := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}}
			if row.isUnknown {
				namespaces = nil
			}
			var found []string
			for _, s := range NewSchedules(row.slumbers, row.ofCluster, namespaces).FindFor(schema.GroupKind{Group: "apps", Kind: "Deployment"}, &metav1.ObjectMeta{Namespace: "ns"}) {
				found = append(found, s.Name)
			}
			if !slices.Equal(found, row.want) {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
}
