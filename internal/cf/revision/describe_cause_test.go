// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// TestRestartIsNamedARestart describes revisions that begin with a stop. Clients restart an app by stopping and
// starting it.
func TestRestartIsNamedARestart(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	after := func(pause time.Duration) *metav1.Time { return new(metav1.NewTime(at.Add(pause))) }
	for name, test := range map[string]struct {
		restart korifiv1alpha1.Restart
		want    string
	}{
		"a stop followed immediately by a start is described as a restart":   {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByStop, By: "ada", StartedBy: "ada", StartedAt: after(time.Second)}, "Restart by ada"},
		"a stop without a start is described as a stop":                      {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByStop, By: "ada"}, "Stop by ada"},
		"a stop followed by a start of another user is described as a stop":  {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByStop, By: "ada", StartedBy: "bob", StartedAt: after(time.Second)}, "Stop by ada"},
		"a stop followed by a start a minute later is described as a stop":   {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByStop, By: "ada", StartedBy: "ada", StartedAt: after(time.Minute)}, "Stop by ada"},
		"a deployment is described as a deployment":                          {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByDeployment, By: "ada"}, "Deployment by ada"},
		"a restart without a recorded user is attributed to an unknown user": {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByRestart}, "Restart by an unknown user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.restart.At = metav1.NewTime(at)
			if found := DescribeCause(test.restart); found != test.want {
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}
