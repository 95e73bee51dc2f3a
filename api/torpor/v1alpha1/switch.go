// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"errors"
)

// These are the annotations of objects whose kind has no status field for Torpor: Deployments, StatefulSets, CronJobs,
// and the kinds of StopAdapters.
const (
	// StoppedAnnotation stops the object while it is "true". torpor.dev/reason and torpor.dev/until hold the reason and the end.
	StoppedAnnotation = "torpor.dev/stopped"
	// StopsAnnotation holds the last stops requested by torpor.dev/stopped, as JSON, newest first.
	StopsAnnotation = "torpor.dev/stops"
	// RestoreAnnotation holds the fields that a stop has changed, as JSON: the previous values, which a start restores,
	// and the new values, with which Torpor detects later changes by other clients. It is present while Torpor keeps
	// the object stopped.
	RestoreAnnotation = "torpor.dev/restore"
	// ResumedAnnotation records that another client changed a field that a stop had set. It holds the time, a space,
	// and the client in the form "unknown (field manager NAME)". Stops that began before this time are no longer in
	// effect.
	ResumedAnnotation = "torpor.dev/resumed"
	// StopRefusedAnnotation explains why the object is not stopped although a stop is requested.
	StopRefusedAnnotation = "torpor.dev/stop-refused"
	// SlumberAnnotationPrefix precedes the name of a Slumber in the name of the annotation that holds its
	// ScheduledStop, as JSON, on objects of all kinds.
	SlumberAnnotationPrefix = "slumber.torpor.dev/"
)

// StopOperationType is add, replace or remove.
//
// +kubebuilder:validation:Enum=add;replace;remove
type StopOperationType string

// These are operations of a JSON patch (RFC 6902). In addition, AddOperation creates missing parent maps.
const (
	AddOperation     StopOperationType = "add"
	ReplaceOperation StopOperationType = "replace"
	RemoveOperation  StopOperationType = "remove"
)

// StopOperation changes one field of an object.
type StopOperation struct {
	// Op is the operation. Both add and replace set the field; add creates missing parent maps, and replace requires them.
	Op StopOperationType `json:"op"`
	// Path is the JSON pointer of an annotation, of a label, or of a field below spec. A slash in a name is written ~1, and a
	// tilde ~0.
	// +kubebuilder:validation:Pattern=`^/(spec(/[^/]+)+|metadata/(annotations|labels)/[^/]+)$`
	// +kubebuilder:validation:MaxLength=300
	Path string `json:"path"`
	// Value is the new value of the field.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Value *JSONValue `json:"value,omitempty"`
}

// JSONValue is any JSON value.
type JSONValue struct {
	// Raw is the JSON text of the value.
	Raw []byte `json:"-"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *JSONValue) UnmarshalJSON(data []byte) error {
	if v == nil {
		return errors.New("expected a value to decode into, found nil")
	}
	v.Raw = bytes.Clone(data)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (v JSONValue) MarshalJSON() ([]byte, error) {
	if len(v.Raw) == 0 {
		return []byte("null"), nil
	}
	return v.Raw, nil
}
