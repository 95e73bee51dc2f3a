// SPDX-License-Identifier: Apache-2.0

// Package crds decides whether Torpor's CustomResourceDefinitions are installed, updated or left unchanged on a hub.
// The definitions of another project are never replaced: its own controllers need fields that Torpor's schema lacks.
package crds

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// PartOfLabel has the value Torpor on objects that Torpor has installed, and VersionLabel has the version of
	// Torpor.
	PartOfLabel  = "app.kubernetes.io/part-of"
	VersionLabel = "app.kubernetes.io/version"
	// Torpor is the value of PartOfLabel.
	Torpor = "torpor"
)

// State is the state of one of Torpor's CustomResourceDefinitions on a hub.
type State string

// The states of a definition on a hub.
const (
	// Absent means that the hub does not have the definition.
	Absent State = "absent"
	// Current means that the definition is Torpor's and of this version.
	Current State = "current"
	// OtherVersion means that the definition is Torpor's, but of an older or a newer version.
	OtherVersion State = "another version"
	// Foreign means that the definition is another project's.
	Foreign State = "another project's"
)

// Judgement is the result for one CustomResourceDefinition.
type Judgement struct {
	Name  string
	State State
	// Managers are the field managers that wrote the spec of the served definition.
	Managers []string
	// Lacks are the versions of Torpor's definition, and the paths of the fields of its schema, that the served
	// definition lacks.
	Lacks []string
}

// MayInstall reports whether Torpor's definition may be written: the hub has none, or has Torpor's of another version.
func (j Judgement) MayInstall() bool { return j.State == Absent || j.State == OtherVersion }

// String describes the judgement in one line.
func (j Judgement) String() string {
	text := j.Name + ": " + string(j.State)
	if j.State == Foreign {
		text += ", written by " + strings.Join(j.Managers, ", ") + "; not changed"
		if len(j.Lacks) > 0 {
			text += "; without Torpor's fields " + strings.Join(j.Lacks, ", ")
		}
	}
	return text
}

// JudgeCRD compares Torpor's definition with the served one, which is nil if it does not exist.
func JudgeCRD(ours, served *apiextensionsv1.CustomResourceDefinition) (Judgement, error) {
	j := Judgement{Name: ours.Name, State: Absent}
	if served == nil {
		return j, nil
	}
	for _, entry := range served.ManagedFields {
		if entry.Subresource == "" && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:spec"`) && !slices.Contains(j.Managers, entry.Manager) {
			j.Managers = append(j.Managers, entry.Manager)
		}
	}
	for _, version := range ours.Spec.Versions {
		there := schemaOf(served, version.Name)
		if there == nil {
			j.Lacks = append(j.Lacks, version.Name)
			continue
		}
		j.Lacks = append(j.Lacks, missingFields("", version.Schema.OpenAPIV3Schema, there)...)
	}
	slices.Sort(j.Lacks)
	same, err := contains(served.Spec, ours.Spec)
	switch {
	case err != nil:
		return j, err
	case !isTorpors(ours, served):
		j.State = Foreign
	case same:
		j.State = Current
	default:
		j.State = OtherVersion
	}
	return j, nil
}

// isTorpors reports whether a served definition is Torpor's, by its label or, without the label, by the description
// of the kind.
func isTorpors(ours, served *apiextensionsv1.CustomResourceDefinition) bool {
	if served.Labels[PartOfLabel] == Torpor {
		return true
	}
	for _, version := range ours.Spec.Versions {
		if there := schemaOf(served, version.Name); there != nil && there.Description == version.Schema.OpenAPIV3Schema.Description {
			return true
		}
	}
	return false
}

func schemaOf(crd *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.JSONSchemaProps {
	for _, v := range crd.Spec.Versions {
		if v.Name == version && v.Schema != nil {
			return v.Schema.OpenAPIV3Schema
		}
	}
	return nil
}

// missingFields returns the paths of the fields in ours that theirs lacks. A missing field is listed without its
// subfields.
func missingFields(path string, ours, theirs *apiextensionsv1.JSONSchemaProps) []string {
	if theirs.XPreserveUnknownFields != nil && *theirs.XPreserveUnknownFields {
		return nil
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(ours.Properties)) {
		field, at := ours.Properties[name], strings.TrimPrefix(path+"."+name, ".")
		there, ok := theirs.Properties[name]
		if !ok {
			if theirs.AdditionalProperties == nil {
				missing = append(missing, at)
			}
			continue
		}
		missing = append(missing, missingFields(at, &field, &there)...)
		if field.Items != nil && field.Items.Schema != nil && there.Items != nil && there.Items.Schema != nil {
			missing = append(missing, missingFields(at+"[]", field.Items.Schema, there.Items.Schema)...)
		}
	}
	return missing
}

// PrepareCRD returns the object to write: Torpor's definition with its labels, based on the metadata of the served one.
func PrepareCRD(ours, served *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.CustomResourceDefinition {
	prepared := ours.DeepCopy()
	if served != nil {
		// Keep labels, annotations and a conversion that were added after the installation.
		prepared.ObjectMeta = *served.ObjectMeta.DeepCopy()
		prepared.Spec.Conversion = served.Spec.Conversion
	}
	metav1.SetMetaDataLabel(&prepared.ObjectMeta, PartOfLabel, Torpor)
	metav1.SetMetaDataLabel(&prepared.ObjectMeta, VersionLabel, version)
	return prepared
}

// contains reports whether has includes all fields of wanted. It may have more, because the API server adds
// defaults.
func contains(has, wanted any) (bool, error) {
	var plain [2]any
	for i, value := range []any{has, wanted} {
		data, err := json.Marshal(value)
		if err != nil {
			return false, fmt.Errorf("encode a definition: %w", err)
		}
		if err := json.Unmarshal(data, &plain[i]); err != nil {
			return false, fmt.Errorf("decode a definition: %w", err)
		}
	}
	return containsJSON(plain[0], plain[1]), nil
}

func containsJSON(has, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		fields, ok := has.(map[string]any)
		for name, value := range wanted {
			if !ok || !containsJSON(fields[name], value) {
				return false
			}
		}
		return true
	case []any:
		list, ok := has.([]any)
		if !ok || len(list) != len(wanted) {
			return false
		}
		for i := range wanted {
			if !containsJSON(list[i], wanted[i]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(has, wanted)
	}
}
