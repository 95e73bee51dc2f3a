// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// stops is the only value that stops something.
const stops = "true"

// describeIgnoredAnnotations says which annotations stop nothing although somebody may think so.
func describeIgnoredAnnotations(cluster *mocov1beta2.MySQLCluster) string {
	var wrong []string
	for _, name := range []string{mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ReconciliationStoppedAnnotation} {
		if value, asked := cluster.Annotations[name]; asked && value != stops {
			wrong = append(wrong, fmt.Sprintf("the annotation %s is ignored: expected %q, found %.40q; correct or remove it", name, stops, value))
		}
	}
	return strings.Join(wrong, "; ")
}

// stopRecord is what provisioning writes of status.pause.
func stopRecord(cluster *mocov1beta2.MySQLCluster, now time.Time) *mocov1beta2.Pause {
	p, before := &mocov1beta2.Pause{}, cluster.Status.Pause
	if cluster.ReconciliationStopped() {
		p.Reconciliation = &mocov1beta2.Stop{
			Since: metav1.NewTime(now), By: reconcile.FieldManagerOf(cluster, mocov1beta2.ReconciliationStoppedAnnotation),
			Reason: cluster.Annotations[torporv1alpha1.ReasonAnnotation],
		}
		p.Reconciliation.Until, _ = reconcile.ReadStopUntil(cluster)
		if before != nil && before.Reconciliation != nil {
			p.Reconciliation.Since = before.Reconciliation.Since
		}
	}
	if *p == (mocov1beta2.Pause{}) {
		return nil
	}
	return p
}

// describeStop says who has stopped reconciliation, why and until when.
func describeStop(cluster *mocov1beta2.MySQLCluster, s mocov1beta2.Stop) string {
	text := "reconciliation is stopped"
	if s.By != "" {
		text += " by " + s.By
	}
	if s.Until != nil {
		text += " until " + s.Until.UTC().Format(time.RFC3339)
	}
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text + "; changes of the spec reach no other object and no Pod is replaced; to go on, run: kubectl moco start reconciliation " + cluster.Name
}
