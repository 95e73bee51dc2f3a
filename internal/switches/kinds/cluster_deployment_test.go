// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// TestAnUnsupportedClusterIsToldTheSameEachTime has two conditions that report why the cluster cannot
// hibernate: Hibernating has precedence.
func TestAnUnsupportedClusterIsToldTheSameEachTime(t *testing.T) {
	cd := &hivev1.ClusterDeployment{Spec: hivev1.ClusterDeploymentSpec{Installed: true}}
	cd.Status.Conditions = []metav1.Condition{
		{Type: hivev1.ClusterHibernationPossibleCondition, Reason: torporv1alpha1.HibernationUnsupportedFinding, Message: "possible"},
		{Type: hivev1.ClusterHibernatingCondition, Reason: hivev1.InvalidSpecReason, Message: "hibernating"},
	}
	for range 100 {
		if found := unsupportedMessage(cd); found != "hibernating" {
			t.Fatalf("expected the message of Hibernating, found %q", found)
		}
	}
}
