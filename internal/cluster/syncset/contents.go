// SPDX-License-Identifier: Apache-2.0

package syncset

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

const (
	// maxResources, maxPatches and maxSecrets are the limits in the schema. They are checked here too, because the hub
	// may use another project's CRD.
	maxResources, maxPatches, maxSecrets = 500, 200, 100
	// maxResourceBytes and maxPatchBytes limit the content of one request.
	maxResourceBytes, maxPatchBytes = 1 << 20, 256 << 10
	maxSegmentBytes                 = 253
)

// Object is one object of a set in the form that is sent to a cluster.
type Object struct {
	Reference
	Manifest []byte
}

// ReadObjects returns the objects of a set. The error mentions the first object that cannot be sent.
func ReadObjects(set *hivev1.SyncSetCommonSpec) ([]Object, error) {
	if err := checkCounts(set); err != nil {
		return nil, err
	}
	var objects []Object
	for i, raw := range set.Resources {
		object, err := readObject(raw.Raw)
		if err != nil {
			return nil, fmt.Errorf("spec.resources[%d]: %w", i, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func checkCounts(set *hivev1.SyncSetCommonSpec) error {
	for _, count := range []struct {
		field       string
		found, most int
	}{
		{"resources", len(set.Resources), maxResources}, {"patches", len(set.Patches), maxPatches}, {"secretMappings", len(set.Secrets), maxSecrets},
	} {
		if count.found > count.most {
			return fmt.Errorf("spec.%s: expected at most %d entries, found %d; divide them among several sets", count.field, count.most, count.found)
		}
	}
	for i := range set.Patches {
		if n := len(set.Patches[i].Patch); n > maxPatchBytes {
			return fmt.Errorf("spec.patches[%d].patch: expected at most %d bytes, found %d", i, maxPatchBytes, n)
		}
		if err := checkReference(ReferenceOfPatch(&set.Patches[i])); err != nil {
			return fmt.Errorf("spec.patches[%d]: %w", i, err)
		}
	}
	for i, mapping := range set.Secrets {
		if err := checkReference(ReferenceOfSecret(mapping.TargetRef)); err != nil {
			return fmt.Errorf("spec.secretMappings[%d].targetRef: %w", i, err)
		}
	}
	return nil
}

func readObject(manifest []byte) (Object, error) {
	if len(manifest) > maxResourceBytes {
		return Object{}, fmt.Errorf("expected at most %d bytes, found %d", maxResourceBytes, len(manifest))
	}
	var o struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	// The decoder's error may quote the manifest.
	if err := json.Unmarshal(manifest, &o); err != nil {
		return Object{}, errors.New("expected an object with apiVersion, kind and metadata")
	}
	object := Object{Reference: Reference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Metadata.Name, Namespace: o.Metadata.Namespace}, Manifest: manifest}
	return object, checkReference(object.Reference)
}

// checkReference refuses values that are unsafe in the path of a request.
func checkReference(r Reference) error {
	version, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil || r.APIVersion == "" {
		return fmt.Errorf("expected apiVersion to be VERSION or GROUP/VERSION, found %.60q", r.APIVersion)
	}
	for _, segment := range []struct {
		field, value string
		mayBeEmpty   bool
	}{
		{"kind", r.Kind, false},
		{"metadata.name", r.Name, false},
		{"metadata.namespace", r.Namespace, true},
		{"the version in apiVersion", version.Version, false},
		{"the group in apiVersion", version.Group, true},
	} {
		if segment.value == "" && segment.mayBeEmpty {
			continue
		}
		if segment.value == "" || len(segment.value) > maxSegmentBytes || len(content.IsPathSegmentName(segment.value)) > 0 {
			return fmt.Errorf("expected %s to be a name, found %.60q", segment.field, segment.value)
		}
	}
	return nil
}

// ReferenceOfPatch returns the reference to the object that a patch changes.
func ReferenceOfPatch(p *hivev1.SyncObjectPatch) Reference {
	return Reference{APIVersion: p.APIVersion, Kind: p.Kind, Name: p.Name, Namespace: p.Namespace}
}

// ReadPatch returns a patch as JSON. Aliases are refused before they are resolved: 100 KiB of YAML that repeats a long
// text with aliases becomes gigabytes of JSON. The YAML decoder limits the number of values, but not their length.
func ReadPatch(p *hivev1.SyncObjectPatch) ([]byte, error) {
	var document yamlv3.Node
	// The decoder's error may quote the patch.
	if err := yamlv3.Unmarshal([]byte(p.Patch), &document); err != nil {
		return nil, errors.New("expected the patch to be JSON or YAML")
	}
	if hasAlias(&document) {
		return nil, errors.New("expected the patch to have no YAML aliases; repeat the values instead")
	}
	body, err := yaml.YAMLToJSON([]byte(p.Patch))
	if err != nil {
		return nil, errors.New("expected the patch to be JSON or YAML")
	}
	return body, nil
}

// ReadPatches returns the patches of a set as JSON. The error mentions the first patch that cannot be sent.
func ReadPatches(set *hivev1.SyncSetCommonSpec) ([][]byte, error) {
	var bodies [][]byte
	for i := range set.Patches {
		body, err := ReadPatch(&set.Patches[i])
		if err != nil {
			return nil, fmt.Errorf("spec.patches[%d]: %w", i, err)
		}
		bodies = append(bodies, body)
	}
	return bodies, nil
}

// hasAlias reports whether a node or one of its descendants is an alias. The parser limits the depth.
func hasAlias(node *yamlv3.Node) bool {
	return node.Kind == yamlv3.AliasNode || slices.ContainsFunc(node.Content, hasAlias)
}

// ReferenceOfSecret returns the reference to a Secret in a cluster.
func ReferenceOfSecret(r hivev1.SecretReference) Reference {
	return Reference{APIVersion: "v1", Kind: "Secret", Name: r.Name, Namespace: r.Namespace}
}

// ObserveSet returns the part of a set that a decision reads.
func ObserveSet(key SetKey, generation int64, spec *hivev1.SyncSetCommonSpec) ObservedSet {
	set := ObservedSet{SetKey: key, Generation: generation, Deletes: spec.ResourceApplyMode == hivev1.SyncResourceApplyMode}
	objects, err := ReadObjects(spec)
	if err != nil {
		set.Invalid = err.Error()
		return set
	}
	for _, o := range objects {
		set.References = append(set.References, o.Reference)
	}
	for _, mapping := range spec.Secrets {
		set.References = append(set.References, ReferenceOfSecret(mapping.TargetRef))
	}
	return set
}
