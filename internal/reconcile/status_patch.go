// SPDX-License-Identifier: Apache-2.0

package reconcile

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

// statusPatch is what differs between two statuses. Conditions are written one by one, because those of others may hold what
// Torpor's type does not know, or lack what it would fill in.
type statusPatch struct {
	operations []patchOperation
	// merge is the same as a merge patch, which needs no status to be there; written is what should stand afterwards.
	merge, written map[string]any
	// hadConditions is whether the status had conditions before.
	hadConditions bool
	// replacesMaps is whether a whole map is added or removed, of which another controller may write its own part meanwhile.
	replacesMaps bool
}

func buildStatusPatch(before, after map[string]any) statusPatch {
	old, hadConditions := before[conditionsField].([]any)
	patch := statusPatch{merge: mergePatch(before, after), hadConditions: hadConditions && len(old) > 0, written: pickChanges(before, after)}
	delete(patch.written, conditionsField)
	patch.diffFields("/status", before, after)
	return patch
}

// pickChanges returns what is new in a map, and in the maps inside it. Their other fields may be another controller's, who takes them away
// meanwhile.
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

// diffFields adds operations for what differs, in the order of names.
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

// diffConditions touches only conditions that differ. Each is tested to be still where it was.
func (p *statusPatch) diffConditions(path string, before, after []any) {
	var removals []patchOperation
	next := 0
	for i, old := range before {
		at := fmt.Sprintf("%s/%d", path, i)
		isSame := patchOperation{"test", at + "/type", typeOf(old)}
		switch {
		case next == len(after) || typeOf(after[next]) != typeOf(old):
			// From the end, so that what is left stays where it is.
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

// hasTests reports whether the patch finds out by itself that another controller has changed what it relies on. Of a map it
// cannot: the stored one may hold what Torpor's type takes for nothing, such as a null, and a test of it would fail for ever.
func (p *statusPatch) hasTests() bool { return p.hadConditions && !p.replacesMaps }

// encode returns the patch and its type. It fails with a conflict if the object has another version than this one, unless
// that is empty.
func (p *statusPatch) encode(version string) ([]byte, types.PatchType, error) {
	var patch any
	form := types.JSONPatchType
	switch {
	case !p.hadConditions:
		// Perhaps there is no status yet, to which a JSON patch could add a field.
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

// mergePatch returns a merge patch (RFC 7386) that makes one map of the other. Values that stay are sent too: a schema may ask for
// them, and the stored object may lack them.
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

// findLostFields returns the paths of what was written and does not stand, sorted. What the server has added is no loss, and the
// items of a list share one path.
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

// findItem returns the item of the same type, such as a condition, and otherwise the one at the same place.
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

// removeField takes the field of a path out of a status, in every item of the lists on its way.
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

// topLevelField is the field of the status that a path leads into.
func topLevelField(path string) string {
	name, _, _ := strings.Cut(path, ".")
	return strings.TrimSuffix(name, "[]")
}

// typeOf is what tells items of a list of conditions apart; nil for items without a type.
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
