// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const upgradePage = "docs/upgrade.md"

// TestUpgradePageListsVersions compares the versions of the API with config/crd; TORPOR_UPDATE=1 rewrites
// them.
func TestUpgradePageListsVersions(t *testing.T) {
	byHand, found, _ := strings.Cut(readFile(t, upgradePage), generatedSpec)
	want := "\n| group | stored | served | kinds |\n|---|---|---|---|\n" + describeVersions(t)
	if found == want {
		return
	}
	if os.Getenv("TORPOR_UPDATE") != "1" {
		t.Errorf("expected %s to end with the versions of config/crd, found it stale; run make generate", upgradePage)
		return
	}
	if err := os.WriteFile(filepath.Join("..", "..", upgradePage), []byte(byHand+generatedSpec+want), 0o600); err != nil {
		t.Fatal(err)
	}
}

func describeVersions(t *testing.T) string {
	t.Helper()
	kinds := map[string][]string{}
	for _, crd := range readDefinitions(t) {
		var stored, served []string
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				stored = append(stored, v.Name)
			}
			if v.Served {
				served = append(served, v.Name)
			}
		}
		if len(stored) != 1 || !slices.Contains(served, stored[0]) {
			t.Errorf("%s: expected one version that is stored, and that it is served, found %q of %q", crd.Name, stored, served)
		}
		row := fmt.Sprintf("| `%s` | %s | %s |", crd.Spec.Group, strings.Join(stored, ", "), strings.Join(served, ", "))
		kinds[row] = append(kinds[row], crd.Spec.Names.Kind)
	}
	var table strings.Builder
	for _, row := range slices.Sorted(maps.Keys(kinds)) {
		slices.Sort(kinds[row])
		fmt.Fprintf(&table, "%s %s |\n", row, strings.Join(kinds[row], ", "))
	}
	return table.String()
}

// TestUpgradeMatrixMatchesTheVersionChecks compares the row of the main branch with the version checks elsewhere.
func TestUpgradeMatrixMatchesTheVersionChecks(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| main \| (\S+) or later \| (\S+) \| from (\S+) on \|`).FindStringSubmatch(readFile(t, upgradePage))
	if row == nil {
		t.Fatalf("%s: expected a row of main with versions of Kubernetes, found none", upgradePage)
	}
	for what, source := range map[string]struct{ file, pattern, want string }{
		"the chart requires the oldest Kubernetes version on the page":           {"charts/torpor/Chart.yaml", `kubeVersion: ">=(\d+\.\d+)\.0-0"`, row[1]},
		"torpor check requires the oldest Kubernetes version on the page":        {"internal/admin/check/check.go", `OldestKubernetes = "(.+)"`, row[1]},
		"the tests run the Kubernetes version on the page":                       {"Makefile", `(?m)^KUBE +:= v(.+)$`, row[2]},
		"torpor check expects policies as of the Kubernetes version on the page": {"internal/admin/check/check.go", `RecordKubernetes = "(.+)"`, row[3]},
		"the chart installs policies as of the Kubernetes version on the page":   {"charts/torpor/templates/_objects.tpl", `semverCompare ">=(\d+\.\d+)-0"`, row[3]},
	} {
		found := regexp.MustCompile(source.pattern).FindStringSubmatch(readFile(t, source.file))
		if found == nil || found[1] != source.want {
			t.Errorf("%s: expected %s in %s, as %s says, found %q", what, source.want, source.file, upgradePage, found)
		}
	}
}

// TestChangelogKeepsItsShape checks the headings that users read before an upgrade: releases from the newest
// to the oldest, each with known sections once.
func TestChangelogKeepsItsShape(t *testing.T) {
	order := []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
	heading := regexp.MustCompile(`^(Unreleased|\d+\.\d+\.\d+ - (\d{4}-\d{2}-\d{2}|unreleased))$`)
	releases := strings.Split("\n"+readFile(t, "CHANGELOG.md"), "\n## ")[1:]
	if len(releases) == 0 || !strings.HasPrefix(releases[0], "Unreleased\n") {
		t.Fatal("CHANGELOG.md: expected the section Unreleased first, found another")
	}
	for _, release := range releases {
		title, text, _ := strings.Cut(release, "\n")
		if !heading.MatchString(title) {
			t.Errorf("CHANGELOG.md: expected a heading such as 1.0.0 - 2026-01-02, found %q", title)
		}
		last := -1
		for _, section := range strings.Split("\n"+text, "\n### ")[1:] {
			name, entries, _ := strings.Cut(section, "\n")
			at := slices.Index(order, name)
			if at <= last {
				t.Errorf("CHANGELOG.md: %s: expected sections of %q in this order, each once, found %q", title, order, name)
			}
			last = at
			if !regexp.MustCompile(`^(#### .+\n\n)?- `).MatchString(strings.TrimSpace(entries)) {
				t.Errorf("CHANGELOG.md: %s: expected entries under %s, found none", title, name)
			}
		}
	}
}
