// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const referencePage = "docs/reference.md"

type referenceEntry struct{ name, meaning string }

// TestReferencePageMatchesTheCode compares docs/reference.md with the names in the code; TORPOR_UPDATE=1
// rewrites it. A condition, reason, event, annotation or metric without a comment fails.
func TestReferencePageMatchesTheCode(t *testing.T) {
	constants := apiConstants(t)
	var page strings.Builder
	page.WriteString("# Reference\n\nGenerated from the code by `make generate`; do not edit.\n")
	for _, part := range []struct{ title, ending string }{
		{"Conditions", "Condition"},
		{"Reasons of conditions, and of the events that tell their changes", "Reason"},
		{"Findings before a stop, which are reasons of HibernationPossible, too", "Finding"},
		{"Annotations", "Annotation"},
		{"Labels", "Label"},
	} {
		writeTable(t, &page, part.title, constants[part.ending])
	}
	writeTable(t, &page, "Further events", constants["Event"])
	writeTable(t, &page, "Metrics", metricEntries(t))
	if os.Getenv("TORPOR_UPDATE") == "1" {
		if err := os.WriteFile(filepath.Join("..", "..", referencePage), []byte(page.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if fileExists(referencePage) && readFile(t, referencePage) == page.String() {
		return
	}
	t.Errorf("expected %s to be what the code says, found it stale; run make generate", referencePage)
}

func writeTable(t *testing.T, page *strings.Builder, title string, entries []referenceEntry) {
	t.Helper()
	if len(entries) == 0 {
		t.Errorf("expected entries under %q, found none", title)
	}
	slices.SortFunc(entries, func(a, b referenceEntry) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.meaning, b.meaning))
	})
	entries = slices.Compact(entries) // Two features may declare the same event.
	fmt.Fprintf(page, "\n## %s\n\n| name | meaning |\n|---|---|\n", title)
	for _, e := range entries {
		if e.meaning == "" {
			t.Errorf("%s: expected a comment that says what it means, found none", e.name)
		}
		fmt.Fprintf(page, "| `%s` | %s |\n", e.name, strings.ReplaceAll(e.meaning, "|", `\|`))
	}
}

// apiConstants returns the string constants of api/ by the last word of their Go names, and the events that
// features declare.
func apiConstants(t *testing.T) map[string][]referenceEntry {
	t.Helper()
	ending := regexp.MustCompile(`[A-Z][a-z]+$`)
	found := map[string][]referenceEntry{}
	known := apiConstantValues(t)
	for _, s := range handwrittenSources(t) {
		event := strings.HasPrefix(s.path, "internal/") && strings.HasSuffix(s.path, "/events.go")
		if s.isTest() || !s.isAPI() && !event {
			continue
		}
		eachConstant(s.file, func(spec *ast.ValueSpec, comment string) {
			kind := ending.FindString(spec.Names[0].Name)
			// An action of events has a list of its own, because many events share it.
			if event && kind != "Action" {
				kind = "Event"
			}
			if value, ok := joinConstants(spec.Values[0], known[path.Dir(s.path)]); ok {
				found[kind] = append(found[kind], referenceEntry{value, comment})
			}
		})
	}
	return found
}

// apiConstantValues returns the string constants of each folder of api/ that are one literal.
func apiConstantValues(t *testing.T) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for _, s := range handwrittenSources(t) {
		if s.isTest() || !s.isAPI() {
			continue
		}
		folder := path.Dir(s.path)
		if all[folder] == nil {
			all[folder] = map[string]string{}
		}
		eachConstant(s.file, func(spec *ast.ValueSpec, _ string) {
			if value, ok := unquote(spec.Values[0]); ok {
				all[folder][spec.Names[0].Name] = value
			}
		})
	}
	return all
}

// joinConstants returns the value of a literal, a known constant, or a sum of these.
func joinConstants(e ast.Expr, known map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		value, ok := known[e.Name]
		return value, ok
	case *ast.BinaryExpr:
		left, isLeft := joinConstants(e.X, known)
		right, isRight := joinConstants(e.Y, known)
		return left + right, isLeft && isRight && e.Op == token.ADD
	default:
		return unquote(e)
	}
}

func eachConstant(file *ast.File, do func(spec *ast.ValueSpec, comment string)) {
	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			spec, ok := s.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				continue
			}
			doc := spec.Doc
			if doc == nil && len(group.Specs) == 1 {
				doc = group.Doc
			}
			do(spec, meaningOf(spec.Names[0].Name, doc.Text()))
		}
	}
}

// meaningOf returns a doc comment in one line, without the leading Go name.
func meaningOf(name, doc string) string {
	line := strings.Join(strings.Fields(doc), " ")
	for _, prefix := range []string{name + ": ", name + " is ", name + " means that ", name + " "} {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.ToUpper(rest[:1]) + rest[1:]
		}
	}
	return line
}

// metricEntries returns names and help texts of metrics from every metrics.go: the first two literals of a description,
// or the fields Name and Help.
func metricEntries(t *testing.T) []referenceEntry {
	t.Helper()
	var found []referenceEntry
	for _, s := range handwrittenSources(t) {
		if s.isTest() || filepath.Base(s.path) != "metrics.go" || strings.HasPrefix(s.path, "local/") {
			continue
		}
		var texts []string
		for _, l := range stringLiterals(s.file) {
			if value, ok := unquote(l); ok {
				texts = append(texts, value)
			}
		}
		for i, value := range texts {
			if strings.HasPrefix(s.path, "conditional/") && strings.HasPrefix(value, "_") {
				value = "torpor_gate" + value // The manager passes this prefix to the library conditional.
			}
			if (strings.HasPrefix(value, "torpor_") || strings.HasPrefix(value, "moco_")) && i+1 < len(texts) {
				found = append(found, referenceEntry{value, texts[i+1]})
			}
		}
	}
	return found
}

func unquote(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(l.Value)
	return value, err == nil
}

const (
	specFolder = "docs/spec"
	// generatedSpec separates the part written by hand from the part generated from the CRD.
	generatedSpec = "<!-- generated from config/crd by make generate; do not edit below -->\n"
	// specDepth is the number of levels of fields that a page shows. Below it are the fields of Pods and
	// claims, which Kubernetes documents.
	specDepth = 4
)

// TestSpecPages compares the second half of each page of docs/spec with its CRD; TORPOR_UPDATE=1 rewrites it.
// A kind without a page, and a page without a kind, fail.
func TestSpecPages(t *testing.T) {
	pages := map[string]bool{}
	for _, name := range listFiles(t) {
		if path, ok := strings.CutPrefix(name, specFolder+"/"); ok {
			pages[path] = true
		}
	}
	elsewhere := map[string]string{}
	for _, crd := range readDefinitions(t) {
		page := strings.ToLower(crd.Spec.Names.Kind) + ".md"
		if !pages[page] {
			t.Errorf("%s: expected the page %s/%s, found none; write what the kind is for", crd.Name, specFolder, page)
			continue
		}
		delete(pages, page)
		compareSpecPage(t, specFolder+"/"+page, crd, elsewhere)
	}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		t.Errorf("%s/%s: expected a CRD of that kind in config/crd, found none; remove the page", specFolder, page)
	}
}

// readDefinitions returns the CRDs. Fields that several kinds share are described on the page of the first.
func readDefinitions(t *testing.T) []apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	first := []string{
		"config/crd/hive.openshift.io_clusterdeployments.yaml", "config/crd/hive.openshift.io_syncsets.yaml", "config/crd/torpor.dev_slumbers.yaml",
	}
	names := slices.Clone(first)
	for _, name := range listFiles(t) {
		if strings.HasPrefix(name, "config/crd/") && strings.Contains(name, "_") && !slices.Contains(first, name) {
			names = append(names, name)
		}
	}
	crds := make([]apiextensionsv1.CustomResourceDefinition, len(names))
	for i, name := range names {
		if err := yaml.Unmarshal([]byte(readFile(t, name)), &crds[i]); err != nil {
			t.Fatal(err)
		}
	}
	return crds
}

func compareSpecPage(
	t *testing.T, page string, crd apiextensionsv1.CustomResourceDefinition, elsewhere map[string]string,
) {
	t.Helper()
	text := readFile(t, page)
	byHand, found, _ := strings.Cut(text, generatedSpec)
	want := describeCRD(crd, elsewhere)
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

// describeCRD returns the generated half of a page. Fields that an earlier page describes are links to it; elsewhere
// holds these links by the names and texts of the fields, and receives those of this page.
func describeCRD(crd apiextensionsv1.CustomResourceDefinition, elsewhere map[string]string) string {
	var page strings.Builder
	version := crd.Spec.Versions[0]
	fmt.Fprintf(&page, "\n## API\n\n`%s/%s`, %s", crd.Spec.Group, version.Name, crd.Spec.Scope)
	for _, short := range crd.Spec.Names.ShortNames {
		if short != crd.Spec.Names.Singular {
			fmt.Fprintf(&page, "; in short `%s`", short)
		}
	}
	page.WriteString(".\n")
	page.WriteString(describeColumns(version.AdditionalPrinterColumns))
	fields := describedFields{here: map[string]string{}, elsewhere: elsewhere}
	for _, part := range []string{"spec", "status"} {
		if schema, ok := version.Schema.OpenAPIV3Schema.Properties[part]; ok && len(cutStandardFields(schema).Properties) > 0 {
			fmt.Fprintf(&page, "\n### %s\n\n", part)
			if at := fields.find(schema); at != "" {
				fmt.Fprintf(&page, "Fields: %s.\n", at)
				continue
			}
			fields.here[identifyFields(schema)] = part
			kind := fmt.Sprintf("[%s](%s.md#%s)", crd.Spec.Names.Kind, strings.ToLower(crd.Spec.Names.Kind), part)
			rest, sentence := cutSharedFields(schema, part, kind, elsewhere)
			page.WriteString(sentence)
			var rows strings.Builder
			unexplained := describeFields(&rows, fields, part, cutStandardFields(rest), 1)
			if rows.Len() > 0 {
				page.WriteString("| field | type | meaning |\n|---|---|---|\n" + rows.String())
			}
			if len(unexplained) > 0 {
				fmt.Fprintf(&page, "\nFields without a description: %s.\n", strings.Join(unexplained, ", "))
			}
		}
	}
	for key, at := range fields.here {
		if elsewhere[key] == "" {
			kind := crd.Spec.Names.Kind
			part, _, _ := strings.Cut(at, ".")
			elsewhere[key] = fmt.Sprintf("[`%s` of a %s](%s.md#%s)", at, kind, strings.ToLower(kind), part)
		}
	}
	return strings.TrimRight(page.String(), "\n") + "\n"
}

// describeColumns returns a sentence with the columns that only kubectl get -o wide prints.
func describeColumns(columns []apiextensionsv1.CustomResourceColumnDefinition) string {
	var wide []string
	for _, column := range columns {
		if column.Priority > 0 {
			wide = append(wide, strings.ToUpper(column.Name))
		}
	}
	if len(wide) == 0 {
		return ""
	}
	return "\n`kubectl get -o wide` adds " + strings.Join(wide, ", ") + ".\n"
}

// cutStandardFields returns a part of a kind without the fields that Kubernetes defines for all kinds, if their
// descriptions add nothing. docs/README.md names them for all pages.
func cutStandardFields(schema apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	isPlain := map[string]*regexp.Regexp{
		"conditions":         regexp.MustCompile(`^(Conditions are the conditions of the \w+\.)?$`),
		"observedGeneration": regexp.MustCompile(`^(ObservedGeneration is the generation that the controller acted on last\.)?$`),
	}
	rest := schema
	rest.Properties = maps.Clone(schema.Properties)
	maps.DeleteFunc(rest.Properties, func(name string, field apiextensionsv1.JSONSchemaProps) bool {
		return isPlain[name] != nil && isPlain[name].MatchString(cellText(field.Description))
	})
	return rest
}

// cutSharedFields returns a part of a kind without the fields that it shares with a kind of an earlier page, and a
// sentence that names these fields and that kind. Fewer than three shared fields are kept.
func cutSharedFields(
	schema apiextensionsv1.JSONSchemaProps, part, kind string, elsewhere map[string]string,
) (rest apiextensionsv1.JSONSchemaProps, sentence string) {
	const fewestForASentence = 3
	shared := map[string][]string{}
	rest = schema
	rest.Properties = maps.Clone(schema.Properties)
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		key := fmt.Sprintf("%s.%s: %s", part, name, mustMarshal(schema.Properties[name]))
		if elsewhere[key] == "" {
			elsewhere[key] = kind
		} else {
			shared[elsewhere[key]] = append(shared[elsewhere[key]], name)
		}
	}
	for _, other := range slices.Sorted(maps.Keys(shared)) {
		if len(shared[other]) < fewestForASentence {
			continue
		}
		for _, name := range shared[other] {
			delete(rest.Properties, name)
		}
		sentence += fmt.Sprintf("The fields `%s` are those of a %s.\n\n", strings.Join(shared[other], "`, `"), other)
	}
	return rest, sentence
}

func mustMarshal(schema apiextensionsv1.JSONSchemaProps) string {
	text, err := yaml.Marshal(schema)
	if err != nil {
		panic(err) // A schema that was decoded can always be encoded.
	}
	return string(text)
}

// describedFields maps the names and texts of fields to their description: a path on this page, or a link to an earlier
// page.
type describedFields struct{ here, elsewhere map[string]string }

// find returns the place where the fields of an object are already described. Objects with few fields are described on
// each page.
func (d describedFields) find(schema apiextensionsv1.JSONSchemaProps) string {
	const fewestForALink = 3
	key := identifyFields(schema)
	if at := d.here[key]; at != "" {
		return "`" + at + "`"
	}
	if len(schema.Properties) < fewestForALink {
		return ""
	}
	return d.elsewhere[key]
}

// describeFields writes a row for each field that has a description, and returns the others. Fields that have the same
// fields below them as an earlier one refer to it. An object with a single field has only the row of that field.
func describeFields(
	page *strings.Builder, described describedFields, path string, schema apiextensionsv1.JSONSchemaProps, depth int,
) (unexplained []string) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		kind, inner, at := field.Type, field, path+"."+name
		if field.Type == "array" && field.Items != nil && field.Items.Schema != nil {
			inner = *field.Items.Schema
			kind, at = "[]"+cmp.Or(inner.Type, "value"), at+"[]"
		}
		required := ""
		// Users do not write required fields of the status.
		if slices.Contains(schema.Required, name) && !strings.HasPrefix(path, "status") {
			required = ", required"
		}
		goesOn, meaning := depth < specDepth && !isEmbeddedKind(name), cellText(withoutFieldName(name, field.Description))
		if isNameOnly(inner) && goesOn {
			goesOn, kind, at = false, "string", at+".name"
		}
		if typeName := kubernetesType(inner); typeName != "" {
			goesOn, meaning = false, strings.TrimSpace(meaning+" Fields: Kubernetes' "+typeName+".")
		}
		if first := described.find(inner); goesOn && first != "" {
			goesOn, meaning = false, strings.TrimSpace(meaning+" Fields: "+first+".")
		}
		isWrapper := goesOn && kind == "object" && len(inner.Properties) == 1
		switch {
		case isWrapper:
		case meaning != "":
			fmt.Fprintf(page, "| `%s` | %s%s | %s |\n", at, cmp.Or(kind, "any"), required, meaning)
		case isExplainedBeside(name, schema):
		case required != "":
			unexplained = append(unexplained, "`"+at+"` (required)")
		default:
			unexplained = append(unexplained, "`"+at+"`")
		}
		if goesOn {
			if len(inner.Properties) > 1 {
				described.here[identifyFields(inner)] = at
			}
			unexplained = append(unexplained, describeFields(page, described, at, inner, depth+1)...)
		}
	}
	return unexplained
}

// isExplainedBeside reports whether the description of another field of the same object names this field.
func isExplainedBeside(name string, schema apiextensionsv1.JSONSchemaProps) bool {
	goName := strings.ToUpper(name[:1]) + name[1:]
	for other, field := range schema.Properties {
		if other != name && slices.Contains(strings.Fields(field.Description), goName) {
			return true
		}
	}
	return false
}

// withoutFieldName returns a description without the name of the field at its beginning, which the first column shows.
func withoutFieldName(name, description string) string {
	first, rest, _ := strings.Cut(description, " ")
	if !strings.EqualFold(first, name) || strings.HasPrefix(rest, "and ") {
		return description
	}
	if rest == "" {
		return description
	}
	if value, ok := cutOneOf(rest, "is ", "are "); ok {
		rest = value
		if regexp.MustCompile(`^\S+( or|,) `).MatchString(rest) {
			return rest // A value at the beginning is not capitalized.
		}
	}
	if value, ok := strings.CutPrefix(rest, "hold "); ok {
		rest = "holds " + value
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// cutOneOf returns the text without the first prefix that it has, and whether it has one.
func cutOneOf(text string, prefixes ...string) (string, bool) {
	for _, prefix := range prefixes {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			return rest, true
		}
	}
	return text, false
}

// isNameOnly reports whether the only field of an object is name, as in references. Such an object gets one row, with
// the description of the reference.
func isNameOnly(schema apiextensionsv1.JSONSchemaProps) bool {
	_, hasName := schema.Properties["name"]
	return hasName && len(schema.Properties) == 1
}

// kubernetesType returns the type of Kubernetes that has these fields, which Kubernetes documents.
func kubernetesType(schema apiextensionsv1.JSONSchemaProps) string {
	switch strings.Join(slices.Sorted(maps.Keys(schema.Properties)), " ") {
	case "name value valueFrom":
		return "EnvVar"
	case "matchExpressions matchLabels":
		return "LabelSelector"
	case "effect key timeAdded value":
		return "Taint"
	case "apiVersion fieldPath kind name namespace resourceVersion uid":
		return "ObjectReference"
	}
	return ""
}

func TestSharedFieldsAreDescribedOnce(t *testing.T) {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	object := func(description string, fields ...string) apiextensionsv1.JSONSchemaProps {
		properties := map[string]apiextensionsv1.JSONSchemaProps{}
		for _, field := range fields {
			properties[field] = text
		}
		return apiextensionsv1.JSONSchemaProps{Type: "object", Description: description, Properties: properties}
	}
	schema := object("")
	schema.Properties["ref"] = object("Ref names the app.", "name")
	first := object("First is a stop.", "by", "since", "until")
	first.Required = []string{"until"}
	schema.Properties["first"] = first
	schema.Properties["second"] = object("Second is a stop.", "by", "since", "until")
	schema.Properties["minSize"] = apiextensionsv1.JSONSchemaProps{Type: "integer", Description: "MinSize and MaxSize are the limits of the group."}
	schema.Properties["maxSize"] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
	schema.Properties["selector"] = object("Selector selects apps.", "matchExpressions", "matchLabels")
	schema.Properties["shared"] = object("Shared is a bucket.", "key", "name", "region")
	schema.Properties["wrapper"] = object("Wrapper holds a size.", "size")
	schema.Properties["wrapper"].Properties["size"] = apiextensionsv1.JSONSchemaProps{Type: "string", Description: "Size is in GiB."}
	described := describedFields{
		here: map[string]string{},
		elsewhere: map[string]string{
			identifyFields(schema.Properties["shared"]): "[`spec.bucket` of a Policy](policy.md#spec)",
		},
	}
	var page strings.Builder
	unexplained := describeFields(&page, described, "spec", schema, 1)
	const want = "| `spec.first` | object | A stop. |\n" +
		"| `spec.minSize` | integer | MinSize and MaxSize are the limits of the group. |\n" +
		"| `spec.ref.name` | string | Names the app. |\n" +
		"| `spec.second` | object | A stop. Fields: `spec.first`. |\n" +
		"| `spec.selector` | object | Selects apps. Fields: Kubernetes' LabelSelector. |\n" +
		"| `spec.shared` | object | A bucket. Fields: [`spec.bucket` of a Policy](policy.md#spec). |\n" +
		"| `spec.wrapper.size` | string | In GiB. |\n"
	if page.String() != want {
		t.Errorf("expected\n%s\nfound\n%s", want, page.String())
	}
	if want := []string{"`spec.first.by`", "`spec.first.since`", "`spec.first.until` (required)"}; !slices.Equal(unexplained, want) {
		t.Errorf("expected %q without a description, found %q", want, unexplained)
	}
}

func TestDescriptionsLeaveOutTheFieldsName(t *testing.T) {
	for description, want := range map[string]string{
		"Until is the end of the stop.":              "The end of the stop.",
		"Until names the Secret.":                    "Names the Secret.",
		"Until is rolling or canary.":                "rolling or canary.",
		"Until and Since are the times of the stop.": "Until and Since are the times of the stop.",
		"Unset means no limit.":                      "Unset means no limit.",
		"Until":                                      "Until",
		"":                                           "",
	} {
		if found := withoutFieldName("until", description); found != want {
			t.Errorf("%q: expected %q, found %q", description, want, found)
		}
	}
}

func TestColumnsAreListedInASentence(t *testing.T) {
	always, wide := apiextensionsv1.CustomResourceColumnDefinition{Name: "State"}, apiextensionsv1.CustomResourceColumnDefinition{Name: "Why", Priority: 1}
	for want, columns := range map[string][]apiextensionsv1.CustomResourceColumnDefinition{
		"":                                    {always},
		"\n`kubectl get -o wide` adds WHY.\n": {always, wide},
		"\n`kubectl get -o wide` adds WHY, WHY.\n": {wide, wide},
	} {
		if found := describeColumns(columns); found != want {
			t.Errorf("expected %q, found %q", want, found)
		}
	}
}

func TestStandardFieldsWithoutFactsAreLeftOut(t *testing.T) {
	schema := func(conditions, generation string) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"conditions": {Description: conditions}, "observedGeneration": {Description: generation}, "state": {},
		}}
	}
	const plain = "ObservedGeneration is the generation that the controller acted on last."
	for want, given := range map[string]apiextensionsv1.JSONSchemaProps{
		"conditions observedGeneration state": schema("Conditions hold Ready.", "ObservedGeneration is the generation of the pool."),
		"conditions state":                    schema("Conditions hold Ready.", plain),
		"state":                               schema("Conditions are the conditions of the app.", ""),
	} {
		if found := strings.Join(slices.Sorted(maps.Keys(cutStandardFields(given).Properties)), " "); found != want {
			t.Errorf("expected %q, found %q", want, found)
		}
	}
}

func TestFieldsOfAnEarlierKindAreNamed(t *testing.T) {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	slumber := apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"reason": text, "waves": text, "windows": text}}
	other := apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"reason": text, "waves": text, "windows": text, "namespaceSelector": {Type: "object"},
	}}
	elsewhere := map[string]string{}
	if rest, sentence := cutSharedFields(slumber, "spec", "[Slumber](slumber.md#spec)", elsewhere); sentence != "" || len(rest.Properties) != len(slumber.Properties) {
		t.Errorf("expected every field on the first page, found %q and %d fields", sentence, len(rest.Properties))
	}
	rest, sentence := cutSharedFields(other, "spec", "[Other](other.md#spec)", elsewhere)
	const want = "The fields `reason`, `waves`, `windows` are those of a [Slumber](slumber.md#spec).\n\n"
	if _, own := rest.Properties["namespaceSelector"]; sentence != want || !own || len(rest.Properties) != 1 {
		t.Errorf("expected %q and the kind's own field, found %q and %v", want, sentence, rest.Properties)
	}
	if rest, sentence = cutSharedFields(slumber, "status", "[Other](other.md#status)", elsewhere); sentence != "" || len(rest.Properties) != len(slumber.Properties) {
		t.Errorf("expected fields of another part to stay, found %q and %d fields", sentence, len(rest.Properties))
	}
}

// identifyFields returns the names and texts of the fields of an object.
func identifyFields(schema apiextensionsv1.JSONSchemaProps) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		fmt.Fprintf(&text, "%s: %s\n", name, schema.Properties[name].Description)
	}
	return text.String()
}

// isEmbeddedKind reports whether a field has the fields of a kind that Kubernetes documents.
func isEmbeddedKind(field string) bool {
	return slices.Contains([]string{"podTemplate", "primaryServiceTemplate", "replicaServiceTemplate", "volumeClaimTemplates", "workVolume", "env", "envFrom", "conditions", "affinity", "sidecars"}, field)
}

func cellText(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
