// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// The field manager of an app shows whether another project handles it. The managed fields of a MySQLCluster show the
// requester of a stop.
func TestCacheKeepsFieldManagers(t *testing.T) {
	for name, test := range map[string]struct {
		object     client.Object
		wantFields bool
	}{
		"an app is cached without the fields of its managedFields":      {&korifiv1alpha1.CFApp{}, false},
		"a MySQLCluster is cached with the fields of its managedFields": {&mocov1beta2.MySQLCluster{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			at := metav1.NewTime(time.Unix(1000, 0))
			test.object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "manager", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}})
			cached, err := trimWrittenFields(test.object)
			if err != nil {
				t.Fatal(err)
			}
			object, ok := cached.(client.Object)
			if !ok {
				t.Fatalf("found %T", cached)
			}
			found := object.GetManagedFields()
			if len(found) != 1 || found[0].Manager != "manager" || !found[0].Time.Equal(&at) || (found[0].FieldsV1 != nil) != test.wantFields {
				t.Errorf("found %+v", found)
			}
		})
	}
}
