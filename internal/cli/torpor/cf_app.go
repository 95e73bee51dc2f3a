// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

func cfAppKind() stoppableKind {
	return stoppableKind{
		gvk:         korifiv1alpha1.CFAppKind(),
		names:       []string{"cfapp", "cfapps"},
		addToScheme: korifiv1alpha1.AddToScheme,
		newObject:   func() client.Object { return &korifiv1alpha1.CFApp{} },
		newList:     func() client.ObjectList { return &korifiv1alpha1.CFAppList{} },
		describe:    restoreStatus(describeCFApp),
		parts:       []string{appPart},
		stop: of(func(app *korifiv1alpha1.CFApp, _ string, _ time.Time) {
			app.Spec.DesiredState = korifiv1alpha1.StoppedState
			removeSharedAnnotations(app)
		}),
		start: of(func(app *korifiv1alpha1.CFApp, _ string, _ time.Time) {
			app.Spec.DesiredState = korifiv1alpha1.StartedState
			removeSharedAnnotations(app)
		}),
		restart: func(app client.Object, now time.Time) {
			setAnnotation(app, torporv1alpha1.RestartRequestAnnotation, now.UTC().Format(time.RFC3339Nano))
		},
		readRevisions: readCFAppRevisions,
		annotationsOf: sharedAnnotations,
		plan:          planCFApp,
		displayNameOf: func(obj client.Object) string {
			app, _ := obj.(*korifiv1alpha1.CFApp)
			return readDisplayName(app.Spec.DisplayName)
		},
	}
}

// readCFAppRevisions returns the requested revision and the settled one. A revision is settled when its instances are
// ready, or gone if the app is stopped, and no instance of an older revision is left.
func readCFAppRevisions(obj client.Object) (wanted, settled int64) {
	statusannotation.RestoreStatus(obj)
	app, ok := obj.(*korifiv1alpha1.CFApp)
	if !ok {
		return 0, 0
	}
	if revision, err := strconv.ParseInt(app.Annotations[korifiv1alpha1.RevisionAnnotation], 10, 64); err == nil {
		wanted = revision
	}
	conditions := app.Status.Conditions
	if meta.IsStatusConditionTrue(conditions, korifiv1alpha1.ReadyCondition) && !meta.IsStatusConditionTrue(conditions, korifiv1alpha1.DrainingCondition) {
		settled = app.Status.ObservedRevision
	}
	return wanted, settled
}

func describeCFApp(app *korifiv1alpha1.CFApp) []stopRow {
	r := newStopRow(korifiv1alpha1.CFAppKind(), app, appPart, app.Spec.DesiredState == korifiv1alpha1.StoppedState, app.Status.Stops)
	r = r.withScheduled(stoprecord.ListScheduled(app.Status.ScheduledStops, app.Annotations))
	r.DisplayName, r.conditions = readDisplayName(app.Spec.DisplayName), app.Status.Conditions
	ready := meta.FindStatusCondition(r.conditions, korifiv1alpha1.ReadyCondition)
	switch {
	case ready == nil:
		r.State = "unknown"
	case r.Stopped && ready.Reason == korifiv1alpha1.StoppedReason:
		r.State = "stopped"
	case r.Stopped:
		r.State = "stopping"
	case ready.Reason == korifiv1alpha1.RunningReason:
		r.State = "running"
	default:
		r.State = "starting"
	}
	if ready != nil {
		r.Message = ready.Message
	}
	r = r.withNext(r.startCommand())
	if ready != nil && ready.Reason == korifiv1alpha1.BlockedReason {
		r.Next = stuckPrefix + ready.Message
	}
	return []stopRow{r}
}
