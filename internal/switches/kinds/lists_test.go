// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kindsInFile is a place in a file that depends on the kinds.
type kindsInFile struct {
	file string
	// place has one capture group, which matches the text that the kinds determine.
	place *regexp.Regexp
	want  string
}

// listKindsInFiles returns the places that TestFilesListEveryKind compares.
func listKindsInFiles(t *testing.T) []kindsInFile {
	t.Helper()
	const (
		slumberTypes = "api/torpor/v1alpha1/slumber.go"
		k9s          = "examples/k9s/plugins.yaml"
		plugin       = "docs/kubectl-torpor.md"
	)
	all, waves := kindNames(ListBuiltIn()), ListWorkloadWaves()
	last := len(all) - 1
	names := strings.Join(all[:last], ", ")
	targets := regexp.MustCompile(`(?m)^  waves:\n    - name: all\n      targets:\n((?:        - \{kind: \w+, selector: \{\}\}\n)+)`)
	scopes := func(plugins string) *regexp.Regexp {
		return regexp.MustCompile(`(?m)^  torpor-(?:` + plugins + `):\n(?:    \w.*\n)*?    scopes: \[(.*)\]$`)
	}
	return []kindsInFile{
		{slumberTypes, regexp.MustCompile(`self\.kind in \[('.*?')\]`), "'" + strings.Join(all, "', '") + "'"},
		{slumberTypes, regexp.MustCompile("message=`expected ([^`]*?), or an apiGroup;"), names + " or " + all[last]},
		{slumberTypes, regexp.MustCompile(`optional(?:\s|//)+for(?:\s|//)+((?s).*?)\.\n`), names + " and " + all[last]},
		{k9s, scopes("stop|start"), strings.Join(listResources(ListBuiltIn().filter(isStoppedWhole)), ", ")},
		{k9s, scopes("why|status"), strings.Join(listResources(ListBuiltIn()), ", ")},
		{plugin, regexp.MustCompile(`KIND is ((?s).*?),\s+or\s+a\s+plural\s+of\s+these`), describeNames(ListBuiltIn())},
		{plugin, regexp.MustCompile(`The default is ((?:\x60\w+=[\w,]+\x60(?: and )?)+) \|`), JoinNames(describeWaves(waves))},
		{plugin, regexp.MustCompile(`Other (.*?)\s+are\s+in\s+the\s+second\s+wave`), JoinNames(waves[1].Kinds.Plurals())},
		{"docs/spec/slumber.md", regexp.MustCompile(`(?m)^(\| Deployment\b.*\n(?:\| .*\n)*)`), describeStates(t)},
		{"examples/clusterslumber.yaml", targets, listTargets()},
		{"examples/slumber-development.yaml", targets, listTargets()},
	}
}

// TestFilesListEveryKind compares places in files with the kinds; TORPOR_UPDATE=1 rewrites them.
func TestFilesListEveryKind(t *testing.T) {
	for _, place := range listKindsInFiles(t) {
		file := filepath.Join(repositoryRoot, place.file)
		found, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(found)
		all := place.place.FindAllStringSubmatchIndex(text, -1)
		if len(all) == 0 {
			t.Errorf("%s: expected a text like %s, found none", place.file, place.place)
		}
		for _, at := range slices.Backward(all) { // The positions of earlier places stay valid.
			span := textSpan{at[2], at[3]}
			if list := text[span.start:span.end]; list != place.want && foldSpace(list) != place.want {
				text = replaceInText(text, span, place.want, place.file)
			}
		}
		expectText(t, file, string(found), text)
	}
}

// isStoppedWhole reports whether users can stop whole objects of the kind, and not only parts such as clustering.
func isStoppedWhole(k Kind) bool {
	_, isPartly := k.Definition.(PartlyStopped)
	return !isPartly
}

func listResources(r Registry) (resources []string) {
	for _, k := range r {
		resources = append(resources, k.Resource())
	}
	return resources
}

// describeNames returns the singular and the short names of the kinds.
func describeNames(r Registry) string {
	var all []string
	for _, k := range r {
		names := slices.Clone(k.Names())
		all = append(all, "`"+strings.Join(slices.Delete(names, 1, 2), "` or `")+"`")
	}
	return strings.Join(all, ", ")
}

// describeWaves returns the waves as values of --wave.
func describeWaves(waves []Wave) (texts []string) {
	for _, wave := range waves {
		texts = append(texts, "`"+wave.Name+"="+strings.Join(wave.Kinds.Names(), ",")+"`")
	}
	return texts
}

// describeStates returns the rows of workloads in the table of kinds.
func describeStates(t *testing.T) string {
	t.Helper()
	var rows strings.Builder
	for _, k := range ListWorkloads() {
		awake, asleep := readStateTexts(t, k)
		excluded := "objects with a controller"
		if k.Switch().IsScaled {
			excluded += "; objects that KEDA or an autoscaler with `minReplicas: 0` scales"
		}
		rows.WriteString("| " + strings.Join([]string{k.GVK().Kind, asleep, awake, excluded}, " | ") + " |\n")
	}
	return rows.String()
}

// readStateTexts returns the comments of an example, which describe when an object of the kind is awake and asleep.
func readStateTexts(t *testing.T, k Kind) (awake, asleep string) {
	t.Helper()
	file := filepath.Join("testdata", "workloads", strings.ToLower(k.GVK().Kind)+".yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)^# Awake: ([^\n]+)\n.*\n---\n# Asleep: ([^\n]+)\n`).FindStringSubmatch(string(text))
	if found == nil {
		t.Fatalf("%s: expected a document that begins with \"# Awake: \", and one that begins with \"# Asleep: \", found others", file)
	}
	return found[1], found[2]
}

// listTargets returns the targets of all workloads in a Slumber.
func listTargets() string {
	var targets strings.Builder
	for _, kind := range kindNames(ListWorkloads()) {
		targets.WriteString("        - {kind: " + kind + ", selector: {}}\n")
	}
	return targets.String()
}

// TestDefaultWaves expects that databases are stopped after the programs that use them.
func TestDefaultWaves(t *testing.T) {
	t.Parallel()
	waves := ListWorkloadWaves()
	for i, kind := range []string{"Deployment", "StatefulSet"} {
		if names := kindNames(waves[i].Kinds); !slices.Contains(names, kind) {
			t.Errorf("expected %s in the wave %s, found %q", kind, waves[i].Name, names)
		}
	}
	total := 0
	for _, wave := range waves {
		total += len(wave.Kinds)
	}
	if total != len(ListWorkloads()) {
		t.Errorf("expected every workload in one wave, found %+v", waves)
	}
	for _, k := range ListBuiltIn() {
		if wave := k.Wave(); wave < 0 || wave >= MaxWaves {
			t.Errorf("%s: expected a wave from 0 to %d, found %d", k.Name(), MaxWaves-1, wave)
		}
	}
}
