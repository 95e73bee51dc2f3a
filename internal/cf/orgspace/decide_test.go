// SPDX-License-Identifier: Apache-2.0

package orgspace

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	mine := map[string]string{"owner": "me"}
	for name, test := range map[string]struct {
		namespace map[string]string
		add       map[string]string
		ready     bool
	}{
		"a namespace without a Pod Security level gets the label":           {mine, PodSecurityLabels(), true},
		"a Pod Security level that an administrator has set is not changed": {map[string]string{"owner": "me", podSecurityLabel: "privileged"}, nil, true},
		"a namespace of another owner gets no label":                        {map[string]string{"owner": "you"}, nil, false},
		"a namespace without an owner gets no label":                        {nil, nil, false},
		"a namespace with the label is not changed":                         {map[string]string{"owner": "me", podSecurityLabel: "restricted"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: test.namespace}}
			for _, lacks := range []bool{true, false} {
				plan := Decide(Observed{Owner: namespace, Labels: mine, Namespace: namespace, LacksPolicy: lacks})
				if !maps.Equal(plan.AddLabels, test.add) || (plan.Ready.Status == metav1.ConditionTrue) != test.ready || plan.CreatePolicy != (lacks && test.ready) {
					t.Errorf("found %+v", plan)
				}
			}
		})
	}
	if plan := Decide(Observed{Owner: &corev1.Namespace{}, Labels: mine}); !plan.CreateNamespace || plan.Ready != nil {
		t.Errorf("found %+v, want the namespace made", plan)
	}
}
