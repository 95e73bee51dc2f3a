// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"errors"
)

// Annotations of objects whose kind has no status of Torpor's: Deployments, StatefulSets, CronJobs, and those of StopAdapters.
const (
	// StoppedAnnotation stops the object while it is "true". torpor.dev/reason and torpor.dev/until say why, and until when.
	StoppedAnnotation = "torpor.dev/stopped"
	// StopsAnnotation has the last stops that torpor.dev/stopped asked for, as JSON, the newest first.
	StopsAnnotation = "torpor.dev/stops"
	// RestoreAnnotation has what a stop has changed of the object, as JSON: the values before, which come back, and those after, by which
	// somebody's change is told from the stop. It is there while Torpor keeps the object stopped.
	RestoreAnnotation = "torpor.dev/restore"
	// ResumedAnnotation is when somebody has changed what a stop had set, and who: a time, a space and the field manager. No stop from before
	// holds any more.
	ResumedAnnotation = "torpor.dev/resumed"
	// StopRefusedAnnotation is why the object is not stopped although it is to be.
	StopRefusedAnnotation = "torpor.dev/stop-refused"
	// SlumberAnnotationPrefix and the name of a Slumber are what that Slumber wants of the object: a ScheduledStop, as JSON.
	SlumberAnnotationPrefix = "slumber.torpor.dev/"
)

// StopOperationType is what becomes of a field.
//
// +kubebuilder:validation:Enum=add;replace;remove
type StopOperationType string

// The operations, as in a JSON patch (RFC 6902). An add makes the maps on its way.
const (
	AddOperation     StopOperationType = "add"
	ReplaceOperation StopOperationType = "replace"
	RemoveOperation  StopOperationType = "remove"
)

// StopOperation changes one field of an object.
type StopOperation struct {
	// Op is what becomes of the field. Both add and replace set it; an add makes the maps on its way, and a replace wants them there.
	Op StopOperationType `json:"op"`
	// Path is the field as a JSON pointer: below spec, an annotation or a label. A slash in a name is written ~1, and a tilde ~0.
	// +kubebuilder:validation:Pattern=`^/(spec(/[^/]+)+|metadata/(annotations|labels)/[^/]+)$`
	// +kubebuilder:validation:MaxLength=300
	Path string `json:"path"`
	// Value is what the field is set to.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Value *JSONValue `json:"value,omitempty"`
}

// JSONValue is any value.
type JSONValue struct {
	// Raw is its text.
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
