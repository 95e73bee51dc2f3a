// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow has the fields of a workflow that the laws check.
type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		TimeoutMinutes int               `json:"timeout-minutes"`
		Permissions    map[string]string `json:"permissions"`
		Steps          []struct {
			Uses string `json:"uses"`
			Run  string `json:"run"`
		} `json:"steps"`
	} `json:"jobs"`
}

// Workflows may only run make targets, because every developer must be able to run the same checks.
func TestWorkflowsRunOnlyMakeTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^([a-z0-9 -]+):( |$)`).FindAllStringSubmatch(readFile(t, "Makefile"), -1) {
		for target := range strings.FieldsSeq(line[1]) {
			targets[target] = true
		}
	}
	// Only the publication of a release may use other commands, because it needs the credentials of the workflow.
	publishing := []string{"docker login", "gh release create", "cosign "}
	found := 0
	for _, name := range listFiles(t) {
		if !strings.HasPrefix(name, ".github/workflows/") {
			continue
		}
		found++
		text := readFile(t, name)
		var w workflow
		if err := yaml.Unmarshal([]byte(text), &w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if w.Permissions["contents"] != "read" || len(w.Permissions) != 1 {
			t.Errorf("%s: expected the permission to read and no other for all jobs, found %v", name, w.Permissions)
		}
		for job, j := range w.Jobs {
			if j.TimeoutMinutes == 0 {
				t.Errorf("%s: %s: expected a limit, found none", name, job)
			}
			for _, step := range j.Steps {
				for line := range strings.Lines(step.Run) {
					isPublishing := slices.ContainsFunc(publishing, func(part string) bool { return strings.Contains(line, part) })
					if !isPublishing && !isMake(line, targets) {
						t.Errorf("%s: %s: expected make with targets of the Makefile, found %q", name, job, line)
					}
					if strings.Contains(line, "${{") {
						t.Errorf("%s: %s: expected variables of the shell, found an expression in a command, into which a name can bring others: %q", name, job, line)
					}
				}
			}
		}
		for _, use := range regexp.MustCompile(`(?m)uses: *(\S+.*)$`).FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`).MatchString(use[1]) {
				t.Errorf("%s: expected a commit and the version that it is of, found %q", name, use[1])
			}
		}
	}
	if found != 3 {
		t.Errorf("expected the workflows ci, release and site, found %d", found)
	}
}

// isMake reports whether a command runs make with existing targets, which may be followed by variables.
func isMake(line string, targets map[string]bool) bool {
	rest, ok := strings.CutPrefix(line, "make ")
	if !ok {
		return false
	}
	for word := range strings.FieldsSeq(rest) {
		if strings.Contains(word, "=") {
			break
		}
		if !targets[word] {
			return false
		}
	}
	return true
}

// Every CustomResourceDefinition must belong to one feature. Otherwise the chart and the bundle would lack the
// definition.
func TestEveryDefinitionBelongsToAFeature(t *testing.T) {
	patterns := map[string][]string{}
	if err := yaml.Unmarshal([]byte(readFile(t, "config/features/definitions.yaml")), &patterns); err != nil {
		t.Fatal(err)
	}
	for feature := range patterns {
		if !fileExists("config/features/" + feature + "/kustomization.yaml") {
			t.Errorf("config/features/definitions.yaml: expected features, found %s, which is none", feature)
		}
	}
	for _, name := range listFiles(t) {
		file, ok := strings.CutPrefix(name, "config/crd/")
		if !ok || !strings.Contains(file, "_") {
			continue
		}
		var owners []string
		for feature, list := range patterns {
			if slices.ContainsFunc(list, func(pattern string) bool { return matchesPattern(pattern, strings.TrimSuffix(file, ".yaml")) }) {
				owners = append(owners, feature)
			}
		}
		if len(owners) != 1 {
			t.Errorf("%s: expected one feature in config/features/definitions.yaml, found %q", name, owners)
		}
	}
}
