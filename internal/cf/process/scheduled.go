// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// ApplyScheduled returns a stopped copy of an app if a Slumber stops the app at the given time, regardless of the app's
// spec. Otherwise it returns the app itself. The copy is never written, because the spec belongs to the users of the CF
// API.
func ApplyScheduled(app *korifiv1alpha1.CFApp, now time.Time) *korifiv1alpha1.CFApp {
	if app == nil || stoprecord.FindScheduled(app.Status.ScheduledStops, app.Annotations, now) == nil {
		return app
	}
	wanted := app.DeepCopy()
	wanted.Spec.DesiredState = korifiv1alpha1.StoppedState
	return wanted
}
