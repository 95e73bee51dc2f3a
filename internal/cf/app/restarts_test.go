// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// If two processes have the same type, the settings of the older one are recorded. The order in which the cache lists
// processes and LRPs does not matter.
func TestSettingsAreThoseOfTheOldestProcess(t *testing.T) {
	t.Parallel()
	var processes []korifiv1alpha1.CFProcess
	var lrps []eiriniv1.LRP
	for age, name := range []string{"older", "younger"} {
		p := korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(age), 0))}}
		p.Spec.ProcessType = korifiv1alpha1.WebProcess
		l := eiriniv1.LRP{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{korifiv1alpha1.ProcessGUIDLabel: name},
			Annotations: map[string]string{torporv1alpha1.SettingsAnnotation: "settings of the " + name},
		}}
		l.Spec.Version, l.Spec.ProcessType = "1", korifiv1alpha1.WebProcess
		processes, lrps = append(processes, p), append(lrps, l)
	}
	for range 2 {
		for range 2 {
			app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{korifiv1alpha1.RevisionAnnotation: "1"}}}
			recordRestart(Observed{App: app, Processes: processes, LRPs: lrps})
			if found := app.Status.Restarts[0].Settings[korifiv1alpha1.WebProcess]; found != "settings of the older" {
				t.Errorf("with %s and the LRP of %s first: expected the settings of the older, found %q", processes[0].Name, lrps[0].Labels[korifiv1alpha1.ProcessGUIDLabel], found)
			}
			slices.Reverse(lrps)
		}
		slices.Reverse(processes)
	}
}
