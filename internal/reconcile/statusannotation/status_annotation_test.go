// SPDX-License-Identifier: Apache-2.0

package statusannotation

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// TestRestoreStatus has rows with a stored status and with annotations that hold dropped fields of it.
func TestRestoreStatus(t *testing.T) {
	const key = "a"
	at := func(seconds int64) *metav1.Time { return new(metav1.Unix(seconds, 0)) }
	const remembered = `{"hibernation":{"sleepStartedAt":"1970-01-01T00:00:01Z","requestedBy":"alice","resumedAt":"1970-01-01T00:00:09Z"}}`
	whole := &hivev1.HibernationRecord{SleepStartedAt: *at(1), RequestedBy: "alice", ResumedAt: at(9)}
	for name, row := range map[string]struct {
		stored      *hivev1.HibernationRecord
		annotations map[string]string
		want        *hivev1.HibernationRecord
	}{
		"a field that the schema dropped is restored": {nil, map[string]string{KeyOf(key): remembered}, whole},
		"a dropped field of a nested object is restored, and its other fields are kept": {
			&hivev1.HibernationRecord{SleepStartedAt: *at(2), RequestedBy: "bob"},
			map[string]string{KeyOf(key): remembered},
			&hivev1.HibernationRecord{SleepStartedAt: *at(2), RequestedBy: "bob", ResumedAt: at(9)},
		},
		"a status with all fields is not changed": {
			&hivev1.HibernationRecord{SleepStartedAt: *at(2), RequestedBy: "bob", ResumedAt: at(3)},
			map[string]string{KeyOf(key): remembered},
			&hivev1.HibernationRecord{SleepStartedAt: *at(2), RequestedBy: "bob", ResumedAt: at(3)},
		},
		"annotations of two controllers with parts of one field: merged": {
			nil,
			map[string]string{KeyOf(key): `{"hibernation":{"requestedBy":"alice"}}`, KeyOf("b"): `{"hibernation":{"resumedAt":"1970-01-01T00:00:09Z"}}`},
			&hivev1.HibernationRecord{RequestedBy: "alice", ResumedAt: at(9)},
		},
		"an annotation with an excepted key: ignored": {nil, map[string]string{KeyOf("excepted"): remembered}, nil},
		"an unrelated annotation: ignored":            {nil, map[string]string{"example.com/a": remembered}, nil},
		"a malformed annotation: ignored":             {nil, map[string]string{KeyOf(key): `{"hibernation":`}, nil},
		"an annotation that is too large: ignored":    {nil, map[string]string{KeyOf(key): remembered + strings.Repeat(" ", MaxSize)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Annotations: row.annotations}}
			cd.Status.Hibernation = row.stored
			RestoreStatus(cd, KeyOf("excepted"))
			if diff := cmp.Diff(row.want, cd.Status.Hibernation); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// costlyObject has a spec that must not be encoded.
type costlyObject struct {
	metav1.ObjectMeta
	Spec   costlySpec
	Status struct {
		Message string `json:"message"`
	} `json:"status"`
}

type costlySpec struct{}

// MarshalJSON implements json.Marshaler.
func (costlySpec) MarshalJSON() ([]byte, error) { return nil, errors.New("the spec was encoded") }

func TestOnlyTheStatusIsEncoded(t *testing.T) {
	obj := &costlyObject{}
	obj.Status.Message = "done"
	fields, err := FieldsOf(obj)
	if diff := cmp.Diff(map[string]any{"message": "done"}, fields); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"a": "b"}, "status": map[string]any{"message": "done"}}}
	if fields, err = FieldsOf(u); err != nil || fields["message"] != "done" || len(fields) != 1 {
		t.Errorf("expected the status of an object without a type, found %v and %v", fields, err)
	}
	same := *obj
	if !HasSameStatus(obj, &same) {
		t.Error("expected two objects of one status to have the same")
	}
	if same.Status.Message = "again"; HasSameStatus(obj, &same) || HasSameStatus(u, u.DeepCopy()) {
		t.Error("expected a different status, and a status of an untyped object, not to be the same")
	}
}
