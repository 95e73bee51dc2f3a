// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const conditionsField = "conditions"

// patchOperation is one operation of a JSON patch (RFC 6902).
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// statusPatch holds the differences between two statuses. Conditions are written one by one: a condition of another
// controller may have fields that Torpor's type lacks, or lack fields that the type would fill in.
type statusPatch struct {
	operations []patchOperation
	// merge is the same change as a merge patch, which needs no existing status; written holds the values that
	// should be stored after the write.
	merge, written map[string]any
	// hadConditions is true if the status had conditions before.
	hadConditions bool
	// replacesMaps is true if the patch adds or removes a whole map, in which another controller may be writing its own
	// part.
	replacesMaps bool
}

func buildStatusPatch(before, after map[string]any) statusPatch {
	old, hadConditions := before[conditionsField].([]any)
	patch := statusPatch{merge: mergePatch(before, after), hadConditions: hadConditions && len(old) > 0, written: pickChanges(before, after)}
	delete(patch.written, conditionsField)
	patch.diffFields("/status", before, after)
	return patch
}

// pickChanges returns the fields of after that are new or changed, including those in nested maps. Unchanged fields
// are omitted, because another controller may own and remove them.
func pickChanges(before, after map[string]any) map[string]any {
	changes := map[string]any{}
	for name, value := range after {
		if value == nil || reflect.DeepEqual(value, before[name]) {
			continue
		}
		old, wasMap := before[name].(map[string]any)
		if fields, isMap := value.(map[string]any); wasMap && isMap {
			changes[name] = pickChanges(old, fields)
			continue
		}
		changes[name] = value
	}
	return changes
}

// diffFields adds an operation for each difference, sorted by field name.
func (p *statusPatch) diffFields(path string, before, after map[string]any) {
	union := maps.Clone(before)
	maps.Copy(union, after)
	for _, name := range slices.Sorted(maps.Keys(union)) {
		old, value := before[name], after[name]
		if reflect.DeepEqual(old, value) {
			continue
		}
		at := path + "/" + strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
		oldFields, wasMap := old.(map[string]any)
		fields, isMap := value.(map[string]any)
		switch {
		case at == "/status/"+conditionsField:
			p.diffConditions(at, asList(old), asList(value))
		case value == nil:
			p.replacesMaps = p.replacesMaps || wasMap
			p.operations = append(p.operations, patchOperation{Op: "remove", Path: at})
		case wasMap && isMap:
			p.diffFields(at, oldFields, fields)
		default:
			p.replacesMaps = p.replacesMaps || isMap
			p.operations = append(p.operations, patchOperation{"add", at, value})
		}
	}
}

// diffConditions adds operations for the conditions that differ. Each replacement and removal is preceded by a test
// that the condition is still at its index.
func (p *statusPatch) diffConditions(path string, before, after []any) {
	var removals []patchOperation
	next := 0
	for i, old := range before {
		at := fmt.Sprintf("%s/%d", path, i)
		isSame := patchOperation{"test", at + "/type", typeOf(old)}
		switch {
		case next == len(after) || typeOf(after[next]) != typeOf(old):
			// Conditions are removed from the end of the list, so that the indexes of the remaining conditions do not
			// change.
			removals = append([]patchOperation{isSame, {Op: "remove", Path: at}}, removals...)
		case !reflect.DeepEqual(old, after[next]):
			p.operations = append(p.operations, isSame, patchOperation{"replace", at, after[next]})
			p.noteWritten(after[next])
			next++
		default:
			next++
		}
	}
	p.operations = append(p.operations, removals...)
	for ; next < len(after); next++ {
		p.operations = append(p.operations, patchOperation{"add", path + "/-", after[next]})
		p.noteWritten(after[next])
	}
}

func (p *statusPatch) noteWritten(condition any) {
	p.written[conditionsField] = append(asList(p.written[conditionsField]), condition)
}

// needsNoVersion reports whether the patch of a shared status is safe without a resource version. A test operation
// checks the index of each condition that the patch replaces or removes, and each other field has one writer. A map that
// is added or removed as a whole is an exception: another controller may write a part of it. A test of the map would
// always fail if the stored map has values that Torpor's type ignores, such as a null.
func (p *statusPatch) needsNoVersion() bool { return p.hadConditions && !p.replacesMaps }

// encode returns the patch and its type. Unless version is empty, the patch fails with a conflict if the object no
// longer has this version.
func (p *statusPatch) encode(version string) ([]byte, types.PatchType, error) {
	var patch any
	form := types.JSONPatchType
	switch {
	case !p.hadConditions:
		// The status may not exist yet, so a JSON patch could not add a field to it.
		patch, form = map[string]any{"metadata": map[string]any{"resourceVersion": version}, "status": p.merge}, types.MergePatchType
	case version == "":
		patch = p.operations
	default:
		patch = append([]patchOperation{{"test", "/metadata/resourceVersion", version}}, p.operations...)
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, "", fmt.Errorf("encode the patch of the status: %w", err)
	}
	return data, form, nil
}

// mergePatch returns a merge patch (RFC 7386) from one map to another. Unchanged values other than maps and lists
// are sent too, because a schema may require them and the stored object may lack them.
func mergePatch(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range before {
		if _, stays := after[name]; !stays {
			patch[name] = nil
		}
	}
	for name, value := range after {
		old, had := before[name]
		oldFields, wasMap := old.(map[string]any)
		fields, isMap := value.(map[string]any)
		switch {
		case wasMap && isMap:
			if nested := mergePatch(oldFields, fields); !reflect.DeepEqual(old, value) {
				patch[name] = nested
			}
		case !had || !reflect.DeepEqual(old, value) || !isMap && asList(value) == nil:
			patch[name] = value
		}
	}
	return patch
}

// findLostFields returns the paths of the values that were written and are not stored. Values that the server added
// are not a loss, and all items of a list share one path.
func findLostFields(path string, written, stands any) []string {
	var lost []string
	switch written := written.(type) {
	case map[string]any:
		if len(written) == 0 {
			return nil
		}
		fields, ok := stands.(map[string]any)
		if !ok {
			return []string{path}
		}
		for _, name := range slices.Sorted(maps.Keys(written)) {
			lost = append(lost, findLostFields(strings.TrimPrefix(path+"."+name, "."), written[name], fields[name])...)
		}
	case []any:
		list, ok := stands.([]any)
		if len(written) > 0 && !ok {
			return []string{path}
		}
		for i, item := range written {
			lost = append(lost, findLostFields(path+"[]", item, findItem(list, i, item))...)
		}
		slices.Sort(lost)
		lost = slices.Compact(lost)
	default:
		if written != nil && !reflect.DeepEqual(written, stands) {
			return []string{path}
		}
	}
	return lost
}

// findItem returns the list item that has the same type as like, if like is a condition, and otherwise the item at
// index i. It returns nil if none exists.
func findItem(list []any, i int, like any) any {
	if kind := typeOf(like); kind != nil {
		if at := slices.IndexFunc(list, func(item any) bool { return typeOf(item) == kind }); at >= 0 {
			return list[at]
		}
		return nil
	}
	if i < len(list) {
		return list[i]
	}
	return nil
}

// removeField removes the field at a path from a status. If the path contains lists, it removes the field from every
// item.
func removeField(fields map[string]any, path string) {
	name, rest, isNested := strings.Cut(path, ".")
	list, isList := strings.CutSuffix(name, "[]")
	switch {
	case isList:
		for _, item := range asList(fields[list]) {
			if item, ok := item.(map[string]any); ok {
				removeField(item, rest)
			}
		}
	case !isNested:
		delete(fields, name)
	default:
		if nested, ok := fields[name].(map[string]any); ok {
			removeField(nested, rest)
		}
	}
}

// topLevelField returns the first field of a path.
func topLevelField(path string) string {
	name, _, _ := strings.Cut(path, ".")
	return strings.TrimSuffix(name, "[]")
}

// typeOf returns the type that identifies an item in a list of conditions; nil for an item without a type.
func typeOf(item any) any {
	fields, _ := item.(map[string]any)
	kind, _ := fields["type"].(string)
	if kind == "" {
		return nil
	}
	return kind
}

func asList(value any) []any {
	list, _ := value.([]any)
	return list
}
