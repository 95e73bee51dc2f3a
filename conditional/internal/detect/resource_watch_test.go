// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStripKeepsWhatIsNeeded(t *testing.T) {
	deleted := metav1.NewTime(time.Unix(1000, 0))
	full := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "APIService", APIVersion: "apiregistration.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "v1.example.com", UID: "1", ResourceVersion: "7", DeletionTimestamp: &deleted, Finalizers: []string{"a"},
			Labels:        map[string]string{automanaged: "true", "app": "b"},
			Annotations:   map[string]string{"schema": "very long"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "c"}},
		},
	}
	got, err := stripMetadata(full)
	if err != nil {
		t.Fatal(err)
	}
	want := &metav1.PartialObjectMetadata{
		TypeMeta: full.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: "v1.example.com", UID: "1", ResourceVersion: "7", DeletionTimestamp: &deleted, Labels: map[string]string{automanaged: "true"},
		},
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("stripped (-want +got):\n%s", diff)
	}
	other := &metav1.PartialObjectMetadataList{}
	if same, err := stripMetadata(other); err != nil || same != any(other) {
		t.Errorf("got %v, %v, want that other objects stay as they are", same, err)
	}
}
