// SPDX-License-Identifier: Apache-2.0

package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/app"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// report writes what is known of an app into its status.
func (c Controller) report(seen app.Observed, created []*korifiv1alpha1.CFProcess) reconcile.Outcome {
	r := app.UpdateStatus(seen, c.Clock.Now())
	for _, condition := range []metav1.Condition{r.Ready, r.Draining} {
		reconcile.SetCondition(&seen.App.Status.Conditions, condition, seen.App.Generation, c.Clock)
	}
	out := reconcile.Outcome{Why: r.Ready.Reason, Underway: r.IsTransient}
	if r.Began != nil {
		out.Events = append(out.Events, reconcile.Event{Reason: revisionBegan, Action: string(r.Began.Cause), Note: app.RestartNote(r.Began, r.Unseen)})
		out.Saved = func() { c.Metrics.countRestarts(r.Began.Cause, r.Unseen+1) }
	}
	for _, p := range created {
		out.Events = append(out.Events, reconcile.Event{Reason: processCreated, Action: "Create", Note: "made the process " + p.Name + " of type " + p.Spec.ProcessType})
	}
	return out
}
