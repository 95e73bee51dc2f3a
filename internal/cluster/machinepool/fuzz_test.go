// SPDX-License-Identifier: Apache-2.0

package machinepool

import "testing"

// FuzzDecodeMachineSet decodes objects of a hostile cluster. Their names become parts of paths, and their texts
// become part of a status.
func FuzzDecodeMachineSet(f *testing.F) {
	for _, item := range []string{
		`{"metadata":{"name":"infra-worker-a","labels":{"a":"b"}},"spec":{"replicas":3,"template":{"spec":{"providerSpec":{"value":{"placement":{"availabilityZone":"a"}}}}}}}`,
		`{"metadata":{"name":"../x"}}`, `{"metadata":{"name":"x","labels":[]}}`, `{"metadata":{"name":"x"},"status":{"errorMessage":"e"}}`, `null`,
		`{"metadata":{"name":"x"},"spec":{"minReplicas":1,"maxReplicas":9,"scaleTargetRef":{"kind":"MachineSet","name":"x"}}}`,
	} {
		f.Add([]byte(item))
	}
	f.Fuzz(func(t *testing.T, item []byte) {
		set, err := DecodeMachineSet(item)
		if err == nil && (!isName(set.Name) || len(set.ErrorReason) > maxReasonBytes || len(set.ErrorMessage) > maxMessageBytes) {
			t.Errorf("expected a name and short texts, found %+v", set)
		}
		if a, err := DecodeAutoscaler(item); err == nil && !isName(a.Name) {
			t.Errorf("expected a name, found %+v", a)
		}
	})
}
