// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const (
	specFolder = "docs/spec"
	// generatedSpec divides what is written by hand from what the CRD says.
	generatedSpec = "<!-- generated from config/crd by make generate; do not edit below -->\n"
	// specDepth is how deep a page shows fields. Below it stand the fields of Pods and claims, which Kubernetes documents.
	specDepth = 4
)

// TestSpecPages compares the second half of each page of docs/spec with its CRD; TORPOR_UPDATE=1 writes it anew.
// A kind without a page, and a page without a kind, fail.
func TestSpecPages(t *testing.T) {
	pages := map[string]bool{}
	for _, name := range listFiles(t) {
		if path, ok := strings.CutPrefix(name, specFolder+"/"); ok {
			pages[path] = true
		}
	}
	for _, name := range listFiles(t) {
		if !strings.HasPrefix(name, "config/crd/") || !strings.Contains(name, "_") {
			continue
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal([]byte(readFile(t, name)), &crd); err != nil {
			t.Fatal(err)
		}
		page := strings.ToLower(crd.Spec.Names.Kind) + ".md"
		if !pages[page] {
			t.Errorf("%s: expected the page %s/%s, found none; write what the kind is for", name, specFolder, page)
			continue
		}
		delete(pages, page)
		compareSpecPage(t, specFolder+"/"+page, crd)
	}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		t.Errorf("%s/%s: expected a CRD of that kind in config/crd, found none; remove the page", specFolder, page)
	}
}

func compareSpecPage(t *testing.T, page string, crd apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	text := readFile(t, page)
	byHand, found, _ := strings.Cut(text, generatedSpec)
	want := describeCRD(crd)
	if found == want {
		return
	}
	if os.Getenv("TORPOR_UPDATE") != "1" {
		t.Errorf("expected %s to end with what config/crd says, found it stale; run make generate", page)
		return
	}
	if err := os.WriteFile(filepath.Join("..", "..", page), []byte(strings.TrimRight(byHand, "\n")+"\n\n"+generatedSpec+want), 0o600); err != nil {
		t.Fatal(err)
	}
}

// describeCRD lists the names, columns and fields of a kind.
func describeCRD(crd apiextensionsv1.CustomResourceDefinition) string {
	var page strings.Builder
	version := crd.Spec.Versions[0]
	names := append([]string{crd.Spec.Names.Plural, crd.Spec.Names.Singular}, crd.Spec.Names.ShortNames...)
	fmt.Fprintf(&page, "\n## API\n\n`%s/%s`, %s; for kubectl: `%s`.\n", crd.Spec.Group, version.Name, crd.Spec.Scope, strings.Join(names, "`, `"))
	if len(version.AdditionalPrinterColumns) > 0 {
		page.WriteString("\n| column | shows | only with `-o wide` |\n|---|---|---|\n")
		for _, column := range version.AdditionalPrinterColumns {
			wide := ""
			if column.Priority > 0 {
				wide = "yes"
			}
			fmt.Fprintf(&page, "| %s | `%s` | %s |\n", strings.ToUpper(column.Name), strings.ReplaceAll(column.JSONPath, "|", `\|`), wide)
		}
	}
	for _, part := range []string{"spec", "status"} {
		if schema, ok := version.Schema.OpenAPIV3Schema.Properties[part]; ok && len(schema.Properties) > 0 {
			fmt.Fprintf(&page, "\n### %s\n\n| field | type | meaning |\n|---|---|---|\n", part)
			describeFields(&page, part, schema, 1)
		}
	}
	return page.String()
}

func describeFields(page *strings.Builder, path string, schema apiextensionsv1.JSONSchemaProps, depth int) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		kind, inner, at := field.Type, field, path+"."+name
		if field.Type == "array" && field.Items != nil && field.Items.Schema != nil {
			inner = *field.Items.Schema
			kind, at = "list of "+cmp.Or(inner.Type, "values"), at+"[]"
		}
		required := ""
		if slices.Contains(schema.Required, name) {
			required = ", required"
		}
		fmt.Fprintf(page, "| `%s` | %s%s | %s |\n", at, cmp.Or(kind, "any"), required, cellText(field.Description))
		if depth < specDepth && !isEmbeddedKind(name) {
			describeFields(page, at, inner, depth+1)
		}
	}
}

// isEmbeddedKind reports whether a field has the fields of a kind that Kubernetes documents.
func isEmbeddedKind(field string) bool {
	return slices.Contains([]string{"podTemplate", "volumeClaimTemplates", "workVolume", "env", "envFrom", "conditions", "affinity", "sidecars"}, field)
}

func cellText(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
