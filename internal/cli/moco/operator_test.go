// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// startOperator reports of every cluster of the script's namespace what its annotations say, until the script ends.
func startOperator(ts *testscript.TestScript, _ bool, _ []string) {
	kube := ts.Value(kubeClientKey{}).(*kubeClient)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := reportAll(ctx, kube); err != nil && ctx.Err() == nil && !k8serrors.IsConflict(err) {
				ts.Logf("operator: %v", err)
			}
			<-tick.C
		}
	})
	ts.Defer(running.Wait)
	ts.Defer(cancel)
}

func reportAll(ctx context.Context, kube *kubeClient) error {
	found, err := kube.listClusters(ctx)
	if err != nil {
		return err
	}
	for i := range found {
		before := found[i].DeepCopy()
		reportStops(&found[i])
		if err := kube.SubResource("status").Patch(ctx, &found[i], client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
	}
	return nil
}

func reportStops(c *mocov1beta2.MySQLCluster) {
	var pause mocov1beta2.Pause
	for _, p := range []clusterPart{clusteringPart(), reconciliationPart()} {
		status, reason := metav1.ConditionTrue, p.condition
		if c.Annotations[p.annotation] == stopValue {
			status, reason = metav1.ConditionFalse, "Stopped"
			stop := &mocov1beta2.Stop{Since: metav1.NewTime(time.Now()), By: fieldManager, Reason: c.Annotations[torporv1alpha1.ReasonAnnotation]}
			if until, err := time.Parse(time.RFC3339, c.Annotations[torporv1alpha1.UntilAnnotation]); err == nil {
				stop.Until = new(metav1.NewTime(until))
			}
			if p == clusteringPart() {
				pause.Clustering = stop
			} else {
				pause.Reconciliation = stop
			}
		}
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: p.condition, Status: status, Reason: reason})
	}
	c.Status.Pause = nil
	if pause.Clustering != nil || pause.Reconciliation != nil {
		c.Status.Pause = &pause
	}
}
