// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// ApplyScheduled returns a copy of an app with its effective state at the given time: stopped while a Slumber stops it,
// regardless of its spec. The copy is never written, because the spec belongs to the users of the CF API.
func ApplyScheduled(app *korifiv1alpha1.CFApp, now time.Time) *korifiv1alpha1.CFApp {
	if app == nil || stoprecord.FindScheduled(app.Status.ScheduledStops, app.Annotations, now) == nil {
		return app
	}
	wanted := app.DeepCopy()
	wanted.Spec.DesiredState = korifiv1alpha1.StoppedState
	return wanted
}
