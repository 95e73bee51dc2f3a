// SPDX-License-Identifier: Apache-2.0

package syncset

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

func TestReasonsOfInvalidSets(t *testing.T) {
	resource := func(text string) *hivev1.SyncSetCommonSpec {
		return &hivev1.SyncSetCommonSpec{Resources: []runtime.RawExtension{{Raw: []byte(text)}}}
	}
	for name, row := range map[string]struct {
		spec *hivev1.SyncSetCommonSpec
		want string
	}{
		"complete object is accepted":                            {resource(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"}}`), ""},
		"object without a name is refused":                       {resource(`{"apiVersion":"v1","kind":"ConfigMap"}`), `spec.resources[0]: expected metadata.name to be a name, found ""`},
		"name with a path traversal is refused":                  {resource(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"../../secrets/a"}}`), "expected metadata.name to be a name"},
		"namespace with a path traversal is refused":             {resource(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":".."}}`), "expected metadata.namespace to be a name"},
		"version with a path traversal is refused":               {resource(`{"apiVersion":"..","kind":"ConfigMap","metadata":{"name":"a"}}`), "expected the version in apiVersion to be a name"},
		"group version of three parts is refused":                {resource(`{"apiVersion":"a/b/c","kind":"ConfigMap","metadata":{"name":"a"}}`), "expected apiVersion to be VERSION or GROUP/VERSION"},
		"value that is not an object is refused, and not quoted": {resource(`"hush"`), "expected an object with apiVersion, kind and metadata"},
		"object that is too large is refused":                    {resource(strings.Repeat("x", maxResourceBytes+1)), "expected at most 1048576 bytes, found 1048577"},
		"too many resources are refused":                         {&hivev1.SyncSetCommonSpec{Resources: make([]runtime.RawExtension, maxResources+1)}, "spec.resources: expected at most 500 entries, found 501; divide them"},
		"too many patches are refused":                           {&hivev1.SyncSetCommonSpec{Patches: make([]hivev1.SyncObjectPatch, maxPatches+1)}, "spec.patches: expected at most 200 entries, found 201; divide them"},
		"too many Secrets are refused":                           {&hivev1.SyncSetCommonSpec{Secrets: make([]hivev1.SecretMapping, maxSecrets+1)}, "spec.secretMappings: expected at most 100 entries, found 101; divide them"},
		"patch without a target is refused":                      {&hivev1.SyncSetCommonSpec{Patches: []hivev1.SyncObjectPatch{{APIVersion: "v1", Kind: "ConfigMap"}}}, "spec.patches[0]: expected metadata.name"},
		"Secret target with a slash is refused":                  {&hivev1.SyncSetCommonSpec{Secrets: []hivev1.SecretMapping{{TargetRef: hivev1.SecretReference{Name: "a/b"}}}}, "spec.secretMappings[0].targetRef: expected metadata.name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadObjects(row.spec)
			if row.want == "" && err == nil {
				return
			}
			if err == nil || row.want == "" || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("expected %q, found %v", row.want, err)
			}
		})
	}
}

func TestPatchesHaveNoYAMLAliases(t *testing.T) {
	const aliases = 200
	long := "a: &a " + strings.Repeat("x", maxPatchBytes/2) + "\nb: [" + strings.Repeat("*a,", aliases) + "]\n"
	for name, row := range map[string]struct{ patch, want, refused string }{
		"JSON is sent unchanged":                   {`{"data":{"a":"b"}}`, `{"data":{"a":"b"}}`, ""},
		"YAML is converted to JSON":                {"data:\n  a: b\n", `{"data":{"a":"b"}}`, ""},
		"YAML list is converted to a JSON list":    {"- op: remove\n  path: /data/a\n", `[{"op":"remove","path":"/data/a"}]`, ""},
		"invalid patch is refused, and not quoted": {"hush: [", "", "expected the patch to be JSON or YAML"},
		"YAML anchor with aliases is refused":      {long, "", "expected the patch to have no YAML aliases"},
		"YAML aliases that multiply are refused":   {"a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "", "expected the patch to have no YAML aliases"},
		"asterisk in a text is accepted":           {`{"data":{"a":"*b","c":"&d"}}`, `{"data":{"a":"*b","c":"&d"}}`, ""},
		"YAML merge keys are refused":              {"a: &a {x: y}\nb:\n  <<: *a\n", "", "expected the patch to have no YAML aliases"},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := ReadPatch(&hivev1.SyncObjectPatch{Patch: row.patch})
			if row.refused == "" {
				if err != nil || strings.TrimSpace(string(body)) != strings.NewReplacer("&", `\u0026`).Replace(row.want) {
					t.Errorf("expected %s, found %s and %v", row.want, body, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), row.refused) || strings.Contains(err.Error(), "hush") {
				t.Errorf("expected %q, found %d bytes and %v", row.refused, len(body), err)
			}
		})
	}
}
