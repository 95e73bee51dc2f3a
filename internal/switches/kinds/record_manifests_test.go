// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const repositoryRoot = "../../.."

// recordManifest holds the values of a policy for the templates in testdata.
type recordManifest struct {
	Notes
	Rules []resourceRule
	// WasStopped and IsStopped are CEL expressions over the old object and the new one: whether it is stopped, or
	// the names of its stopped switches.
	WasStopped, IsStopped string
	// Names lists the switches, Times the annotations with the end of a stop, and Patterns the patterns of values.
	Names, Times string
	Patterns     []valuePattern
	// Hook is the name of the webhook, and Changed the start of the CEL expression of its match condition.
	Hook, Changed string
}

type resourceRule struct{ Group, Version, Resources string }

type valuePattern struct{ Name, Pattern string }

// TestRecordManifests compares the policies and webhooks in config/record with the kinds; TORPOR_UPDATE=1 rewrites them,
// and keeps the comment at the beginning of each.
func TestRecordManifests(t *testing.T) {
	registry := ListBuiltIn()
	for _, n := range registry.ListNotes() {
		m := newRecordManifest(t, registry, n)
		policy := "policy_one_switch.yaml.tmpl"
		if len(n.Switches) > 1 {
			policy = "policy_several_switches.yaml.tmpl"
		}
		expectManifest(t, filepath.Join(repositoryRoot, "config", "record", n.Policy+".yaml"), policy, m)
		expectManifest(t, filepath.Join(repositoryRoot, "config", "record", "webhook", n.Policy+".yaml"), "webhook.yaml.tmpl", m)
	}
}

// workloadRules matches a list of rules for the kinds whose switch is an annotation. All rules of the list end with
// the same text.
var workloadRules = regexp.MustCompile(`(?m)(^ *- )\{apiGroups: \[apps\],( apiVersions: \[v1\],)? resources: \[deployments.*?, (\w+: \[[^]]*\])\}\n(?: *- \{.*\}\n)*`)

// TestRecordManifestsOfWorkloads compares the lists of workload kinds in other policies with the registry;
// TORPOR_UPDATE=1 rewrites them.
func TestRecordManifestsOfWorkloads(t *testing.T) {
	m := newRecordManifest(t, ListBuiltIn(), *ListWorkloads()[0].Notes())
	for _, name := range []string{
		"config/features/workloads/record_policy.yaml", "examples/policies/longest-stop.yaml", "examples/policies/reason-required.yaml", "examples/policies/verbs.yaml",
	} {
		file := filepath.Join(repositoryRoot, name)
		found, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !workloadRules.Match(found) {
			t.Errorf("%s: expected a list of rules that begins with Deployments, found none", name)
		}
		expectText(t, file, string(found), workloadRules.ReplaceAllStringFunc(string(found), m.formatRules))
	}
}

// formatRules returns the rules for all kinds, in the format of an existing list.
func (m *recordManifest) formatRules(list string) string {
	form := workloadRules.FindStringSubmatch(list)
	var lines strings.Builder
	for _, rule := range m.Rules {
		versions := ""
		if form[2] != "" {
			versions = " apiVersions: [" + rule.Version + "],"
		}
		fmt.Fprintf(&lines, "%s{apiGroups: [%s],%s resources: [%s], %s}\n", form[1], rule.Group, versions, rule.Resources, form[3])
	}
	return lines.String()
}

func expectManifest(t *testing.T, file, name string, m recordManifest) {
	t.Helper()
	parsed, err := template.ParseFiles(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var made bytes.Buffer
	if err := parsed.Execute(&made, m); err != nil {
		t.Fatal(err)
	}
	found, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	expectText(t, file, string(found), leadingComment(string(found), m.Policy)+made.String())
}

func expectText(t *testing.T, file, found, want string) {
	t.Helper()
	switch {
	case want == found:
	case os.Getenv("TORPOR_UPDATE") == "1":
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: expected what the kinds define, found something else; run make generate", file)
	}
}

// leadingComment returns the comment at the beginning of a manifest.
func leadingComment(manifest, policy string) string {
	var comment []string
	for line := range strings.Lines(manifest) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		comment = append(comment, line)
	}
	return cmp.Or(strings.Join(comment, ""), "# This records the requesters of stops of "+policy+".\n")
}

func newRecordManifest(t *testing.T, registry Registry, n Notes) recordManifest {
	t.Helper()
	m := recordManifest{Notes: n, Hook: strings.TrimPrefix(n.Path, "/")}
	for _, k := range registry {
		if of := k.Notes(); of != nil && of.Policy == n.Policy {
			m.addRule(k.GVK().Group, k.GVK().Version, k.Resource())
		}
	}
	if n.HasRecordInAnnotations {
		for _, target := range listAdapterTargets(t) {
			m.addRule(target.Group, `"*"`, target.Resource)
		}
	}
	if len(n.Switches) == 1 {
		m.describeSwitch(n.Switches[0])
	} else {
		m.describeSwitches()
	}
	return m
}

func (m *recordManifest) addRule(group, version, resource string) {
	group = cmp.Or(group, `""`)
	if last := len(m.Rules) - 1; last >= 0 && m.Rules[last].Group == group && m.Rules[last].Version == version {
		m.Rules[last].Resources += ", " + resource
		return
	}
	m.Rules = append(m.Rules, resourceRule{group, version, resource})
}

// listAdapterTargets returns the target kinds of the example StopAdapters.
func listAdapterTargets(t *testing.T) (targets []torporv1alpha1.StopAdapterTarget) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repositoryRoot, "examples", "stopadapters", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("expected examples of StopAdapters, found none: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var a torporv1alpha1.StopAdapter
			if err := yaml.Unmarshal([]byte(document), &a); err == nil && a.Kind == torporv1alpha1.StopAdapterKind().Kind {
				targets = append(targets, a.Spec.Target)
			}
		}
	}
	slices.SortFunc(targets, func(a, b torporv1alpha1.StopAdapterTarget) int { return cmp.Compare(a.Group, b.Group) })
	return targets
}

func (m *recordManifest) describeSwitch(s NotedSwitch) {
	const isField, isAnnotation = "%s.spec[?'%s'].orValue('') == '%s'", "variables.%s[?'%s'].orValue('') == '%s'"
	shared := []string{torporv1alpha1.RequestedByAnnotation, torporv1alpha1.RequestVersionAnnotation, torporv1alpha1.UntilAnnotation, torporv1alpha1.UntilNotedAnnotation}
	if s.SpecField == "" {
		m.WasStopped = fmt.Sprintf(isAnnotation, "before", s.Annotations.Name, s.StoppedValue)
		m.IsStopped = fmt.Sprintf(isAnnotation, "annotations", s.Annotations.Name, s.StoppedValue)
		m.Changed = listTexts(append([]string{s.Annotations.Name}, shared...), skips())
		return
	}
	was, is := "oldObject != null && "+fmt.Sprintf(isField, "oldObject", s.SpecField, s.StoppedValue), fmt.Sprintf(isField, "object", s.SpecField, s.StoppedValue)
	m.WasStopped, m.IsStopped = `"`+was+`"`, is
	m.Changed = fmt.Sprintf("          (%s) != (%s)\n          || %s", was, is, strings.TrimLeft(listTexts(shared, skips()), " "))
}

func (m *recordManifest) describeSwitches() {
	var was, is, quoted, names, requesters, versions, notes []string
	ends := []string{torporv1alpha1.UntilAnnotation}
	for _, s := range m.Switches {
		name := strings.TrimSuffix(strings.TrimPrefix(s.Annotations.RequestedBy, torporv1alpha1.GroupVersion().Group+"/"), "-requested-by")
		test := fmt.Sprintf(" == '%s'", s.StoppedValue)
		if s.StoppedPattern != "" {
			m.Patterns = append(m.Patterns, valuePattern{name, s.StoppedPattern})
			test = fmt.Sprintf(".matches(variables.%s)", name)
		}
		was = append(was, fmt.Sprintf("(variables.before[?'%s'].orValue('')%s ? ['%s'] : [])", s.Annotations.Name, test, name))
		is = append(is, fmt.Sprintf("(variables.annotations[?'%s'].orValue('')%s ? ['%s'] : [])", s.Annotations.Name, test, name))
		quoted, names = append(quoted, "'"+name+"'"), append(names, s.Annotations.Name)
		requesters, versions, ends = append(requesters, s.Annotations.RequestedBy), append(versions, s.Annotations.RequestVersion), append(ends, s.Annotations.Until)
	}
	for _, end := range ends {
		notes = append(notes, end+torporv1alpha1.NotedSuffix)
	}
	m.WasStopped, m.IsStopped = strings.Join(was, "\n        + "), strings.Join(is, "\n        + ")
	m.Names = "[" + strings.Join(quoted, ", ") + "]"
	m.Times = strings.TrimSpace(listTexts(append(slices.Clone(ends), torporv1alpha1.SkipUntilAnnotation)))
	m.Changed = listTexts(names, requesters, versions, ends, notes, skips())
}

func skips() []string {
	return []string{torporv1alpha1.SkipUntilAnnotation, torporv1alpha1.SkipUntilNotedAnnotation}
}

// listTexts returns a CEL list of strings, with one line for each group.
func listTexts(groups ...[]string) string {
	var lines []string
	for _, group := range groups {
		lines = append(lines, "          '"+strings.Join(group, "', '")+"'")
	}
	return strings.Replace(strings.Join(lines, ",\n"), "'", "['", 1) + "]"
}
