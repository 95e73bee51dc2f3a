// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// leastTextLists is the minimum number of lists of workloads that TestTextsListEveryWorkload must find.
const leastTextLists = 20

// kindList matches a list of kinds that begins with Deployments. It may continue in the next line of a comment.
var kindList = regexp.MustCompile(`\bDeployments?\b(?:(?:[\s,'#/|]|\b(?:and|or|an?)\b)+[A-Z]\w+\b)+`)

// TestTextsListEveryWorkload reads the lists of workload kinds in pages, comments, help and manifests. A list with
// kinds that have replicas and kinds that have none must contain every kind of ListWorkloads.
func TestTextsListEveryWorkload(t *testing.T) {
	lists := 0
	for _, name := range listTextFiles(t) {
		text, err := os.ReadFile(filepath.Join(repositoryRoot, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range kindList.FindAllIndex(text, -1) {
			missing := listMissing(string(text[at[0]:at[1]]))
			if missing == nil {
				continue
			}
			lists++
			if len(missing) > 0 {
				t.Errorf("%s:%d: expected a list of every workload, found one without %s; add it to the list",
					name, 1+strings.Count(string(text[:at[0]]), "\n"), strings.Join(missing, ", "))
			}
		}
	}
	if lists < leastTextLists {
		t.Errorf("expected at least %d lists of workloads in texts, found %d; correct the pattern of this test", leastTextLists, lists)
	}
}

// listMissing returns the workloads that a list of kinds lacks. It returns nil for a list of only kinds with
// replicas, or of only kinds without, since that list does not mean all workloads.
func listMissing(list string) []string {
	missing, isAbout := []string{}, map[bool]bool{}
	for _, k := range ListWorkloads() {
		if regexp.MustCompile(`\b` + k.GVK().Kind + `s?\b`).MatchString(list) {
			isAbout[k.Switch().IsScaled] = true
		} else {
			missing = append(missing, k.GVK().Kind)
		}
	}
	if len(isAbout) < 2 {
		return nil
	}
	return missing
}

// listTextFiles returns the files with texts for users and readers, except ADRs and the change log, which describe
// the past.
func listTextFiles(t *testing.T) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(repositoryRoot), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == "docs/adr" || d.IsDir() && slices.Contains([]string{".git", ".cache", "testdata", "node_modules"}, d.Name()):
			return fs.SkipDir
		case d.Type().IsRegular() && name != "CHANGELOG.md" && !strings.HasSuffix(name, "_test.go") &&
			slices.Contains([]string{".go", ".md", ".yaml"}, filepath.Ext(name)):
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
