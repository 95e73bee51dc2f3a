// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// TestRestartIsNamedARestart describes revisions that began with a stop: the client's restart is a stop and a start.
func TestRestartIsNamedARestart(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	after := func(pause time.Duration) *metav1.Time { return new(metav1.NewTime(at.Add(pause))) }
	for name, test := range map[string]struct {
		restart korifiv1alpha1.Restart
		want    string
	}{
		"a stop and a start at once":           {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByStop, By: "ada", StartedBy: "ada", StartedAt: after(time.Second)}, "Restart by ada"},
		"a stop without a start":               {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByStop, By: "ada"}, "Stop by ada"},
		"a start of another user":              {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByStop, By: "ada", StartedBy: "bob", StartedAt: after(time.Second)}, "Stop by ada"},
		"a start by the user a minute later":   {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByStop, By: "ada", StartedBy: "ada", StartedAt: after(time.Minute)}, "Stop by ada"},
		"a deployment":                         {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByDeployment, By: "ada"}, "Deployment by ada"},
		"a user that admission did not record": {korifiv1alpha1.Restart{Cause: korifiv1alpha1.CausedByRestart}, "Restart by an unknown user"},
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
