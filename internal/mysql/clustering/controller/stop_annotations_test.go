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
		"nobody asks":                       {nil, nil, true},
		"some are stopped":                  {map[string]string{mocov1beta2.StoppedInstancesAnnotation: "[0,2]"}, []int{0, 2}, true},
		"words stop nothing":                {map[string]string{mocov1beta2.StoppedInstancesAnnotation: "1"}, nil, false},
		"a list that is half wrong as well": {map[string]string{mocov1beta2.StoppedInstancesAnnotation: `["1",2]`}, nil, false},
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
