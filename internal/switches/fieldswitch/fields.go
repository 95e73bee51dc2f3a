// SPDX-License-Identifier: Apache-2.0

// Package fieldswitch decides how objects of kinds without status fields of Torpor are stopped. A stop sets some
// fields and, in the same write, saves their previous values in an annotation. A start restores these values. The
// package has no side effects.
package fieldswitch

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	k8sjson "k8s.io/apimachinery/pkg/util/json"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// maxRestore limits the size of the saved values of an object, in bytes, because all annotations of an object
	// together have at most 256 KiB.
	maxRestore = 16 << 10
	// maxOperations limits how many fields a stop sets, including the maps that it creates on their paths.
	maxOperations = 50
	metadataField = "metadata"
)

// SavedField is a field before and after a stop. A nil value stands for an absent field.
type SavedField struct {
	Path   string          `json:"path"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// IsMade is true for a map that the stop created on the path to another field.
	IsMade bool `json:"made,omitempty"`
}

// ValidateOperations returns an error for the first invalid operation of a stop. The value of an annotation or label
// must be a string: with any other value, none of the object's annotations or labels could be read.
func ValidateOperations(operations []torporv1alpha1.StopOperation) error {
	for i, operation := range operations {
		isRemoved := operation.Op == torporv1alpha1.RemoveOperation
		switch names := parsePath(operation.Path); {
		case !isRemoved && operation.Value == nil:
			return fmt.Errorf("[%d]: expected a value for %s, found none; add the field value, or set op to remove", i, operation.Path)
		case !mayBeSet(names) || len(names) != 3 && names[0] == metadataField:
			return fmt.Errorf("[%d]: expected a field below /spec, or the name of one annotation or label, found %s; write a slash in a name as ~1", i, operation.Path)
		case names[0] == metadataField && !isRemoved && !isText(operation.Value.Raw):
			return fmt.Errorf("[%d]: expected a string for %s, found %s; put the value in quotes", i, operation.Path, operation.Value.Raw)
		}
	}
	return nil
}

// mayBeSet reports whether a stop may set a field, or may create the field as a map on the path to another field.
func mayBeSet(names []string) bool {
	if names[0] == "spec" {
		return true
	}
	return names[0] == metadataField && (len(names) == 2 || len(names) == 3) && (names[1] == "annotations" || names[1] == "labels")
}

func isText(raw json.RawMessage) bool {
	var text *string
	return json.Unmarshal(raw, &text) == nil && text != nil
}

// mayRestore reports whether a stop can have saved this field. Without this check, a user who may only write
// annotations could make Torpor write other fields of the object.
func mayRestore(one SavedField) bool {
	names := parsePath(one.Path)
	if !mayBeSet(names) || names[0] != metadataField {
		return mayBeSet(names)
	}
	if len(names) == 2 {
		return one.IsMade && one.Before == nil
	}
	return (one.Before == nil || isText(one.Before)) && (one.After == nil || isText(one.After))
}

// parsePath splits a JSON pointer into names.
func parsePath(path string) []string {
	names := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i := range names {
		names[i] = strings.ReplaceAll(strings.ReplaceAll(names[i], "~1", "/"), "~0", "~")
	}
	return names
}

func formatPath(names []string) string {
	var path strings.Builder
	for _, name := range names {
		path.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
	}
	return path.String()
}

// readField returns the value of a field, and whether it exists.
func readField(object map[string]any, names []string) (value any, isThere bool) {
	value = object
	for _, name := range names {
		fields, isMap := value.(map[string]any)
		if value, isThere = fields[name]; !isMap || !isThere {
			return nil, false
		}
	}
	return value, true
}

// setField sets a field of an existing map.
func setField(object map[string]any, names []string, value any) error {
	parent, isThere := readField(object, names[:len(names)-1])
	fields, isMap := parent.(map[string]any)
	if len(names) == 1 {
		fields, isMap, isThere = object, true, true
	}
	if !isThere || !isMap {
		return fmt.Errorf("expected a map at %s, found none", formatPath(names[:len(names)-1]))
	}
	fields[names[len(names)-1]] = value
	return nil
}

func removeField(object map[string]any, names []string) {
	parent, _ := readField(object, names[:len(names)-1])
	if fields, isMap := parent.(map[string]any); isMap {
		delete(fields, names[len(names)-1])
	}
}

// applyOperations applies the operations of a stop to an object, and returns the previous values.
func applyOperations(object map[string]any, operations []torporv1alpha1.StopOperation) (saved []SavedField, err error) {
	for _, operation := range operations {
		names := parsePath(operation.Path)
		if slices.ContainsFunc(saved, func(one SavedField) bool { return one.Path == operation.Path && !one.IsMade }) {
			return nil, fmt.Errorf("expected each field once, found %s twice", operation.Path)
		}
		if operation.Op == torporv1alpha1.AddOperation {
			made, err := makeMaps(object, names)
			if err != nil {
				return nil, err
			}
			saved = append(saved, made...)
		}
		one, err := newSaved(object, names, operation)
		if err != nil {
			return nil, err
		}
		if operation.Op == torporv1alpha1.RemoveOperation {
			removeField(object, names)
		} else if err := setRaw(object, names, one.After); err != nil {
			return nil, err
		}
		if saved = append(saved, one); len(saved) > maxOperations {
			return nil, fmt.Errorf("expected at most %d fields to be set, found more", maxOperations)
		}
	}
	if data, err := json.Marshal(saved); err != nil || len(data) > maxRestore {
		return nil, errors.Join(err, fmt.Errorf("expected at most %d bytes of saved values, found %d", maxRestore, len(data)))
	}
	return saved, nil
}

func newSaved(object map[string]any, names []string, operation torporv1alpha1.StopOperation) (one SavedField, err error) {
	one = SavedField{Path: formatPath(names)}
	if before, isThere := readField(object, names); isThere {
		if one.Before, err = json.Marshal(before); err != nil {
			return one, fmt.Errorf("encode %s: %w", one.Path, err)
		}
	}
	if operation.Op == torporv1alpha1.RemoveOperation {
		return one, nil
	}
	if operation.Value == nil || !json.Valid(operation.Value.Raw) {
		return one, fmt.Errorf("expected a value for %s, found none", one.Path)
	}
	one.After = slices.Clone(operation.Value.Raw)
	return one, nil
}

// makeMaps creates the missing maps on the path to a field.
func makeMaps(object map[string]any, names []string) (made []SavedField, err error) {
	for i := 1; i < len(names); i++ {
		if _, isThere := readField(object, names[:i]); isThere {
			continue
		}
		if err := setField(object, names[:i], map[string]any{}); err != nil {
			return nil, err
		}
		made = append(made, SavedField{Path: formatPath(names[:i]), After: json.RawMessage("{}"), IsMade: true})
	}
	return made, nil
}

func setRaw(object map[string]any, names []string, raw json.RawMessage) error {
	value, err := decode(raw)
	if err != nil {
		return err
	}
	return setField(object, names, value)
}

// decode decodes a value as unstructured objects represent it, with whole numbers as int64.
func decode(raw json.RawMessage) (any, error) {
	var value map[string]any
	if err := k8sjson.Unmarshal(append(append([]byte(`{"v":`), raw...), '}'), &value); err != nil {
		return nil, fmt.Errorf("decode a value: %w", err)
	}
	return value["v"], nil
}

// restoreFields restores the previous values of the saved fields. It does not restore fields that were changed since
// the stop, and returns the paths of these fields.
func restoreFields(object map[string]any, saved []SavedField) (kept []string) {
	for _, one := range slices.Backward(saved) {
		names := parsePath(one.Path)
		switch {
		case !holdsValue(object, one):
			if !one.IsMade { // Another writer has added something to the map.
				kept = append(kept, one.Path)
			}
		case one.Before == nil:
			removeField(object, names)
		default:
			if err := setRaw(object, names, one.Before); err != nil {
				kept = append(kept, one.Path)
			}
		}
	}
	slices.Sort(kept)
	return kept
}

// holdsValue reports whether a field still has the value that a stop has set.
func holdsValue(object map[string]any, one SavedField) bool {
	is, isThere := readField(object, parsePath(one.Path))
	if one.After == nil || !isThere {
		return one.After == nil && !isThere
	}
	want, err := decode(one.After)
	return err == nil && reflect.DeepEqual(normalize(is), normalize(want))
}

// normalize converts numbers to one type, so that values from different decoders compare as equal.
func normalize(value any) any {
	data, err := json.Marshal(value)
	if err != nil {
		return value
	}
	var plain any
	if json.Unmarshal(data, &plain) != nil {
		return value
	}
	return plain
}

// holdsAll reports whether every field still has the value that a stop has set. It ignores the maps that the stop has
// created.
func holdsAll(object map[string]any, saved []SavedField) bool {
	return !slices.ContainsFunc(saved, func(one SavedField) bool { return !one.IsMade && !holdsValue(object, one) })
}

// IsSet reports whether an object already has the values that the operations would set, regardless of who set them.
func IsSet(object map[string]any, operations []torporv1alpha1.StopOperation) bool {
	for _, operation := range operations {
		one := SavedField{Path: operation.Path}
		if operation.Op != torporv1alpha1.RemoveOperation && operation.Value != nil {
			one.After = operation.Value.Raw
		}
		if !holdsValue(object, one) {
			return false
		}
	}
	return len(operations) > 0
}

// DescribeStop describes the changes that a stop of an object would make.
func DescribeStop(object map[string]any, operations []torporv1alpha1.StopOperation) ([]string, error) {
	saved, err := applyOperations(runtime.DeepCopyJSON(object), operations)
	if err != nil {
		return nil, err
	}
	var changes []string
	for _, one := range saved {
		switch after := cmp.Or(string(one.After), "absent"); {
		case one.IsMade:
		case string(one.Before) == string(one.After):
			changes = append(changes, one.Path+" is already "+after+", and a start does not change it")
		case one.Before == nil:
			changes = append(changes, one.Path+" is set to "+after+", and is removed at the start")
		case one.After == nil:
			changes = append(changes, one.Path+" is removed, and is set to "+string(one.Before)+" again at the start")
		default:
			changes = append(changes, one.Path+" is set to "+after+", and back to "+string(one.Before)+" at the start")
		}
	}
	return changes, nil
}

// DescribeStart describes the changes that a start of an object would make.
func (s SwitchState) DescribeStart() (changes []string) {
	for _, one := range s.Saved {
		switch {
		case one.IsMade:
		case one.Before == nil:
			changes = append(changes, one.Path+" is removed, unless it has changed since the stop")
		default:
			changes = append(changes, one.Path+" is set to "+string(one.Before)+" again, unless it has changed since the stop")
		}
	}
	if len(changes) == 0 {
		changes = []string{"Nothing changes: Torpor does not keep the object stopped"}
	}
	return changes
}
