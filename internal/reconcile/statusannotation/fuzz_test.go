// SPDX-License-Identifier: Apache-2.0

package statusannotation

import (
	"reflect"
	"testing"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// FuzzRestoreStatus reads annotations with any content. Only fields that the status lacks may change.
func FuzzRestoreStatus(f *testing.F) {
	for _, text := range []string{`{"powerState":"Running"}`, `{"stops":[{"by":"x"}]}`, `{"conditions":{}}`, `{"powerState":1}`, `[]`, `null`, `{"spec":{}}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cd := &hivev1.ClusterDeployment{}
		cd.Name, cd.Spec.ClusterName, cd.Status.PowerState = "c", "c", "Hibernating"
		cd.Annotations = map[string]string{KeyOf("hibernation"): text}
		before := cd.DeepCopy()
		RestoreStatus(cd)
		if cd.Status.PowerState != before.Status.PowerState {
			t.Errorf("expected a field of the status to stay, found %q", cd.Status.PowerState)
		}
		cd.Status, before.Status = hivev1.ClusterDeploymentStatus{}, hivev1.ClusterDeploymentStatus{}
		if !reflect.DeepEqual(cd, before) {
			t.Errorf("expected nothing but the status to change, found %+v", cd)
		}
	})
}
