// SPDX-License-Identifier: Apache-2.0

package otherwriter

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TakeFields returns managed fields in which the owner has applied the fields that the project had applied or updated,
// or nil if no such fields exist. Entries for subresources such as the status are not changed.
func TakeFields(entries []metav1.ManagedFieldsEntry, from Upstream, owner string) ([]metav1.ManagedFieldsEntry, error) {
	isTheirs := func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == "" && from.IsManager(e.Manager) }
	if !slices.ContainsFunc(entries, isTheirs) {
		return nil, nil
	}
	var taken []metav1.ManagedFieldsEntry
	for _, e := range entries {
		if isTheirs(e) {
			e.Manager, e.Operation = owner, metav1.ManagedFieldsOperationApply
		}
		at := slices.IndexFunc(taken, func(other metav1.ManagedFieldsEntry) bool {
			return other.Manager == owner && other.Operation == e.Operation && other.Subresource == e.Subresource && other.APIVersion == e.APIVersion
		})
		if at < 0 || e.Manager != owner || e.FieldsV1 == nil || taken[at].FieldsV1 == nil {
			taken = append(taken, e)
			continue
		}
		fields, err := joinFields(*taken[at].FieldsV1, *e.FieldsV1)
		if err != nil {
			return nil, err
		}
		taken[at].FieldsV1 = fields
	}
	return taken, nil
}

// joinFields returns the union of two sets of fields. Each set is a JSON tree whose keys are path elements.
func joinFields(a, b metav1.FieldsV1) (*metav1.FieldsV1, error) {
	var trees [2]map[string]any
	for i, set := range []metav1.FieldsV1{a, b} {
		if err := json.Unmarshal([]byte(set.GetRawString()), &trees[i]); err != nil {
			return nil, fmt.Errorf("decode the fields of a manager: %w", err)
		}
	}
	joinTrees(trees[0], trees[1])
	text, err := json.Marshal(trees[0])
	if err != nil {
		return nil, fmt.Errorf("write the fields of a manager: %w", err)
	}
	return metav1.NewFieldsV1(string(text)), nil
}

func joinTrees(into, from map[string]any) {
	for name, value := range from {
		nested, isTree := value.(map[string]any)
		if old, isOld := into[name].(map[string]any); isTree && isOld {
			joinTrees(old, nested)
			continue
		}
		into[name] = value
	}
}
