// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// ApplyScheduled returns an app as it is wanted at a time: stopped while a Slumber stops it, whatever its spec says. The app itself stays as
// it is, and nobody writes what is returned: the clients of the CF API read and write what people want.
func ApplyScheduled(app *korifiv1alpha1.CFApp, now time.Time) *korifiv1alpha1.CFApp {
	if app == nil || stoprecord.FindScheduled(app.Status.ScheduledStops, app.Annotations, now) == nil {
		return app
	}
	wanted := app.DeepCopy()
	wanted.Spec.DesiredState = korifiv1alpha1.StoppedState
	return wanted
}
