// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

func TestStoppedInstances(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        []int
		understood  bool
	}{
		"no instance is stopped":                  {nil, nil, true},
		"a list of two stops both":                {map[string]string{mocov1beta2.StoppedInstancesAnnotation: "[0,2]"}, []int{0, 2}, true},
		"a value that is no list stops nothing":   {map[string]string{mocov1beta2.StoppedInstancesAnnotation: "1"}, nil, false},
		"a list that is half wrong stops nothing": {map[string]string{mocov1beta2.StoppedInstancesAnnotation: `["1",2]`}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			got, understood := parseStoppedInstances(cluster)
			if diff := cmp.Diff(test.want, got); diff != "" || understood != test.understood {
				t.Errorf("(-want +got), understood: want %t, got %t:\n%s", test.understood, understood, diff)
			}
		})
	}
}

func TestOwnedStatusHasNothingOfOtherControllers(t *testing.T) {
	cluster := &mocov1beta2.MySQLCluster{}
	cluster.Status.Conditions = []metav1.Condition{{Type: mocov1beta2.HealthyCondition}, {Type: mocov1beta2.ReconcileSuccessCondition}}
	cluster.Status.Pause = &mocov1beta2.Pause{Clustering: &mocov1beta2.Stop{By: "a"}, Reconciliation: &mocov1beta2.Stop{By: "b"}, Unfinished: "c"}
	cluster.Status.RestoredTime = new(metav1.Unix(1, 0))
	want := mocov1beta2.MySQLClusterStatus{
		Conditions: []metav1.Condition{{Type: mocov1beta2.HealthyCondition}},
		Pause:      &mocov1beta2.Pause{Clustering: &mocov1beta2.Stop{By: "a"}, Unfinished: "c"},
	}
	if diff := cmp.Diff(want, ownedStatus(cluster)); diff != "" {
		t.Errorf("owned status (-want +got):\n%s", diff)
	}
}
