// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

func TestActualStateIsStartedWhileInstancesServe(t *testing.T) {
	t.Parallel()
	const started, stopped = korifiv1alpha1.StartedState, korifiv1alpha1.StoppedState
	for name, row := range map[string]struct {
		desired          korifiv1alpha1.AppState
		lastStop         string
		ready, older     int32
		scheduled        *torporv1alpha1.ScheduledStop
		processCondition string
		want             korifiv1alpha1.AppState
	}{
		"an app with a ready instance: STARTED":                        {desired: started, lastStop: "0", ready: 1, want: started},
		"an app without a ready instance: STOPPED":                     {desired: started, lastStop: "0", want: stopped},
		"an app with 0 instances: STARTED":                             {desired: started, lastStop: "0", processCondition: korifiv1alpha1.RunningReason, want: started},
		"a deployment whose older revision still serves: STARTED":      {desired: started, lastStop: "0", older: 1, want: started},
		"a start after a stop whose older instances drain: STOPPED":    {desired: started, lastStop: "2", older: 1, want: stopped},
		"a stopped app whose last instances are not gone yet: STOPPED": {desired: stopped, lastStop: "2", older: 1, want: stopped},
		"an app that a Slumber has stopped: STOPPED": {
			desired: started, lastStop: "0", scheduled: &torporv1alpha1.ScheduledStop{Slumber: "nights"}, processCondition: korifiv1alpha1.StoppedReason, want: stopped,
		},
	} {
		app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			korifiv1alpha1.RevisionAnnotation: "2", korifiv1alpha1.LastStopRevisionAnnotation: row.lastStop,
		}}}
		app.Spec.DesiredState = row.desired
		p := korifiv1alpha1.CFProcess{}
		p.Spec.ProcessType = korifiv1alpha1.WebProcess
		p.Status.ActualInstances, p.Status.ObservedRevision = row.ready, 2
		p.Status.Revisions = []korifiv1alpha1.RevisionStatus{{Revision: 1, Desired: row.older, Ready: row.older}, {Revision: 2, Desired: 1, Ready: row.ready}}
		if row.processCondition != "" {
			p.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: row.processCondition}}
		}
		UpdateStatus(Observed{
			App: app, Processes: []korifiv1alpha1.CFProcess{p}, Scheduled: row.scheduled, Moment: savings.Moment{At: time.Unix(0, 0)},
		})
		if found := app.Status.ActualState; found != row.want {
			t.Errorf("%s: expected %s, found %s with %+v", name, row.want, found, app.Status.Instances)
		}
	}
}
