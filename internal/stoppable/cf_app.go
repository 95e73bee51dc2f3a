// SPDX-License-Identifier: Apache-2.0

package stoppable

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

func cfApps() Kind {
	return Kind{
		GVK:     korifiv1alpha1.CFAppKind(),
		New:     func() Object { return &korifiv1alpha1.CFApp{} },
		NewList: func() List { return &korifiv1alpha1.CFAppList{} },
		ReadState: func(obj Object, _ time.Time) State {
			if app, ok := obj.(*korifiv1alpha1.CFApp); ok {
				return readCFApp(app)
			}
			return State{}
		},
	}
}

func readCFApp(app *korifiv1alpha1.CFApp) State {
	app = restoreStatus(app)
	s := State{
		IsStoppable:              app.DeletionTimestamp.IsZero(),
		IsStoppedWithoutSlumbers: app.Spec.DesiredState != korifiv1alpha1.StartedState,
		ScheduledStops:           stoprecord.ListScheduled(app.Status.ScheduledStops, app.Annotations),
	}
	if ready := meta.FindStatusCondition(app.Status.Conditions, korifiv1alpha1.ReadyCondition); ready != nil {
		isReady := ready.Status == metav1.ConditionTrue
		s.IsAsleep = isReady && ready.Reason == korifiv1alpha1.StoppedReason
		s.IsAwake = isReady && ready.Reason == korifiv1alpha1.RunningReason
		if !isReady {
			s.Message = ready.Reason
		}
	}
	s.ResumedAt, s.ResumedBy = findResume(app)
	return s
}

// findResume returns when a user last requested that the app run: a start, a restart or a deployment. A stop that
// ended by torpor.dev/until does not count, since that end does not ask for the hours after it.
func findResume(app *korifiv1alpha1.CFApp) (at metav1.Time, by string) {
	current := revision.DescribeCurrent(app)
	if current.Cause == korifiv1alpha1.CausedByRestart || current.Cause == korifiv1alpha1.CausedByDeployment {
		at, by = current.At, current.By
	}
	stops := app.Status.Stops
	isByItself := len(stops) > 0 && stops[0].StartedBy == torporv1alpha1.UntilAnnotation
	if current.StartedAt != nil && current.StartedAt.After(at.Time) && !isByItself {
		at, by = *current.StartedAt, current.StartedBy
	}
	return at, by
}
