// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// fieldUse defines how a field of the spec takes effect: a value changes the objects, the condition SpecFullySupported
// lists the field, or a package reads it.
type fieldUse struct {
	value   any
	isNamed bool
	reader  string
	word    string
}

func fieldUses() map[string]fieldUse {
	builds := func(value any) fieldUse { return fieldUse{value: value} }
	named := func(value any) fieldUse { return fieldUse{value: value, isNamed: true} }
	read := func(by, word string) fieldUse { return fieldUse{reader: by, word: word} }
	const clustering, backup = "clustering/controller", "backup"
	labels, more := map[string]any{"a": "b"}, map[string]any{"type": "LoadBalancer"}
	uses := map[string]fieldUse{
		"replicas": builds(int64(5)), "offline": builds(true), "serverIDBase": builds(int64(7)), "startupWaitSeconds": builds(int64(60)),
		"initializeTimezoneData": builds(true), "logRotationSize": builds(int64(5)), "volumeClaimTemplates": builds([]any{}),
		"podTemplate.metadata.labels": builds(labels), "podTemplate.metadata.annotations": builds(labels),
		"podTemplate.spec":                builds(map[string]any{"containers": []any{map[string]any{"name": "mysqld"}}, "hostNetwork": true}),
		"podTemplate.overwriteContainers": builds([]any{map[string]any{"name": "moco-init", "resources": map[string]any{}}}),
		"mysqlConfigMapName":              read("provisioning/controller", ".MySQLConfigMapName"),
		"maxDelaySeconds":                 read(clustering, ".MaxDelaySeconds"),
		"backupPolicyName":                read(backup, ".BackupPolicyName"),
		"disableSlowQueryLogContainer":    builds(true),
		"agentUseLocalhost":               named(true), "collectors": builds([]any{"x"}), "logRotationSchedule": named("@daily"),
		"maxDelaySecondsForPodDeletion": read("../../config/features/mysql", ".maxDelaySecondsForPodDeletion"), "replicationSourceSecretName": builds("x"), "slowQueryLogConfigTmpl": named("x"),
		"podTemplate.metadata.name": named("x"), "restore.jobConfig.threads": named(int64(8)),
	}
	for _, service := range []string{"primaryServiceTemplate", "replicaServiceTemplate"} {
		uses[service+".metadata.labels"], uses[service+".metadata.annotations"] = builds(labels), builds(labels)
		uses[service+".metadata.name"], uses[service+".spec"] = named("x"), builds(more)
	}
	for _, name := range []string{"SourceName", "SourceNamespace", "RestorePoint", "Schema", "Users", "OnError"} {
		uses["restore."+strings.ToLower(name[:1])+name[1:]] = read(backup, "."+name)
	}
	for name, word := range map[string]string{
		"serviceAccountName": "ServiceAccountName", "bucketConfig": "BucketConfig", "workVolume": "WorkVolume", "cpu": "CPU", "maxCpu": "MaxCPU",
		"memory": "Memory", "maxMemory": "MaxMemory", "env": "Env", "envFrom": "EnvFrom", "affinity": "Affinity", "volumes": "Volumes", "volumeMounts": "VolumeMounts",
	} {
		uses["restore.jobConfig."+name] = read(backup, "."+word)
	}
	return uses
}

// TestEveryFieldIsActedOnOrNamed checks every field in the schema of upstream's kind.
func TestEveryFieldIsActedOnOrNamed(t *testing.T) {
	text, err := os.ReadFile("../../../config/crd/moco.cybozu.com_mysqlclusters.yaml")
	testenv.ExpectNoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	testenv.ExpectNoError(t, yaml.Unmarshal(text, crd))
	found := listFields("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	uses := fieldUses()
	testenv.ExpectEqual(t, "fields of the schema", slices.Sorted(maps.Keys(uses)), slices.Sorted(slices.Values(found)))
	before, templateBefore, inputsBefore := buildTexts(t, parseCluster(t, minimalCluster))
	for path, use := range uses {
		t.Run(path, func(t *testing.T) {
			if use.reader != "" {
				expectWordIn(t, filepath.Join("..", use.reader), use.word)
			}
			if use.value == nil {
				return
			}
			content := map[string]any{}
			testenv.ExpectNoError(t, yaml.Unmarshal([]byte(minimalCluster), &content))
			testenv.ExpectNoError(t, unstructured.SetNestedField(content, use.value, append([]string{"spec"}, strings.Split(path, ".")...)...))
			data, err := yaml.Marshal(content)
			testenv.ExpectNoError(t, err)
			c := parseCluster(t, string(data))
			testenv.ExpectEqual(t, "named", use.isNamed, slices.Contains(mocov1beta2.UnsupportedFields(c.Spec), "spec."+path))
			objects, template, inputs := buildTexts(t, c)
			testenv.ExpectEqual(t, "other objects", !use.isNamed, objects != before)
			testenv.ExpectEqual(t, "other inputs with another template", template != templateBefore, inputs != inputsBefore)
		})
	}
}

// listFields returns the fields that have no subfields. A Pod spec or a Service counts as one field.
func listFields(prefix string, schema apiextensionsv1.JSONSchemaProps) []string {
	if len(schema.Properties) == 0 || strings.HasSuffix(prefix, ".spec") || strings.HasSuffix(prefix, "bucketConfig") || schema.XPreserveUnknownFields != nil {
		return []string{prefix}
	}
	var all []string
	for name, of := range schema.Properties {
		all = append(all, listFields(strings.TrimPrefix(prefix+"."+name, "."), of)...)
	}
	return all
}

// buildTexts returns the objects and the Pod template without the hash of the inputs, and that hash.
func buildTexts(t *testing.T, c *mocov1beta2.MySQLCluster) (objects, template, inputs string) {
	t.Helper()
	w, err := BuildObjects(BuildInput{Cluster: c})
	testenv.ExpectNoError(t, err)
	inputs, _, err = unstructured.NestedString(w.StatefulSet.Object, "spec", "template", "metadata", "annotations", mocov1beta2.InputsAnnotation)
	testenv.ExpectNoError(t, err)
	unstructured.RemoveNestedField(w.StatefulSet.Object, "spec", "template", "metadata", "annotations", mocov1beta2.InputsAnnotation)
	pods, _, err := unstructured.NestedMap(w.StatefulSet.Object, "spec", "template")
	testenv.ExpectNoError(t, err)
	text, err := yaml.Marshal(append(w.Objects, w.StatefulSet))
	testenv.ExpectNoError(t, err)
	podText, err := yaml.Marshal(pods)
	testenv.ExpectNoError(t, err)
	return string(text), string(podText), inputs
}

func expectWordIn(t *testing.T, folder, word string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.*"))
	testenv.ExpectNoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		testenv.ExpectNoError(t, err)
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(string(text), word) {
			return
		}
	}
	t.Errorf("nothing in %s reads %s", folder, word)
}
