// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// What somebody has stopped, from the annotations; what came of it, in status.pause.

// stoppedInstances are the indexes of the instances to leave alone. A list that cannot be read stops nothing.
func stoppedInstances(cluster *mocov1beta2.MySQLCluster) ([]int, bool) {
	text, asked := cluster.Annotations[mocov1beta2.StoppedInstancesAnnotation]
	if !asked {
		return nil, true
	}
	var list []int
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, false // What was read before the mistake may be anybody's instance.
	}
	return list, true
}

// misread says which annotations cannot be read, for people.
func misread(cluster *mocov1beta2.MySQLCluster) string {
	var wrong []string
	if _, ok := stoppedInstances(cluster); !ok {
		wrong = append(wrong, mocov1beta2.StoppedInstancesAnnotation+" is ignored: expected a JSON list of ordinals such as [1], found something else; correct it")
	}
	if _, ok := reconcile.Until(cluster); !ok {
		wrong = append(wrong, torporv1alpha1.UntilAnnotation+" is ignored: expected a time such as 2026-11-20T22:00:00Z, found something else; correct it")
	}
	return strings.Join(wrong, "; ")
}

// overdue: something is stopped, and its time is over.
func overdue(cluster *mocov1beta2.MySQLCluster, now time.Time) bool {
	_, some := cluster.Annotations[mocov1beta2.StoppedInstancesAnnotation]
	at, _ := reconcile.Until(cluster)
	return at != nil && !now.Before(at.Time) && (cluster.ClusteringStopped() || cluster.ReconciliationStopped() || some)
}

// late is for how long a stop is overdue.
func late(cluster *mocov1beta2.MySQLCluster, now time.Time) time.Duration {
	if !overdue(cluster, now) {
		return 0
	}
	at, _ := reconcile.Until(cluster)
	return now.Sub(at.Time)
}

// endStop takes back what was stopped, unless somebody has changed it meanwhile.
func (c Controller) endStop(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (reconcile.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	after := cluster.DeepCopy()
	for _, name := range []string{
		mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ReconciliationStoppedAnnotation, mocov1beta2.StoppedInstancesAnnotation,
		torporv1alpha1.UntilAnnotation, torporv1alpha1.ReasonAnnotation,
	} {
		delete(after.Annotations, name)
	}
	err := c.client.Patch(ctx, after, client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{}))
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return reconcile.Outcome{After: outdatedRetry, Why: "the object has changed"}, nil
	}
	if err != nil {
		note := "The stop should have ended, and could not be taken back: " + describe(err) + "; take its annotations back"
		return reconcile.Outcome{
			Events: []reconcile.Event{{Warning: true, Reason: stopOverdue, Action: stopAction, Note: note}},
		}, fmt.Errorf("end the stop: %w", err)
	}
	note := "The stop has ended by itself: it was until " + cluster.Annotations[torporv1alpha1.UntilAnnotation]
	return reconcile.Outcome{
		After: outdatedRetry, Why: "the stop is over",
		Events: []reconcile.Event{{Reason: stopEnded, Action: stopAction, Note: note}},
	}, nil
}

// stopRecord is the stop that was reached, nil while clustering goes on or quiesces.
func stopRecord(cluster *mocov1beta2.MySQLCluster) *clustering.StopRecord {
	p := cluster.Status.Pause
	if p == nil || p.Clustering == nil || p.Quiescing != "" {
		return nil
	}
	return &clustering.StopRecord{Since: p.Clustering.Since.Time, Unfinished: p.Unfinished}
}

// pause is what status.pause says after a pass.
func pause(cluster *mocov1beta2.MySQLCluster, plan clustering.Plan, now time.Time) *mocov1beta2.Pause {
	p := &mocov1beta2.Pause{}
	before := cluster.Status.Pause
	if before != nil {
		p.Reconciliation = before.Reconciliation
	}
	if cluster.ClusteringStopped() {
		p.Clustering = &mocov1beta2.Stop{
			Since: metav1.NewTime(now), By: reconcile.AnnotatedBy(cluster, mocov1beta2.ClusteringStoppedAnnotation),
			Reason: cluster.Annotations[torporv1alpha1.ReasonAnnotation],
		}
		p.Clustering.Until, _ = reconcile.Until(cluster)
		if before != nil && before.Clustering != nil {
			p.Clustering.Since = before.Clustering.Since
		}
		if plan.Stop == nil {
			p.Quiescing = plan.Why
		} else {
			p.Unfinished = plan.Stop.Unfinished
		}
	}
	if *p == (mocov1beta2.Pause{}) {
		return nil
	}
	return p
}
