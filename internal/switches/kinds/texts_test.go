// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"errors"
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

// kindList matches a list of kinds that begins with Deployments. The list may continue in the next line of a comment.
var kindList = regexp.MustCompile(`\bDeployments?\b(?:(?:[\s,'#/|]|\b(?:and|or|an?)\b)+[A-Z]\w+\b)+`)

// TestTextsListEveryWorkload reads the lists of workload kinds in pages, comments, help and manifests. A list with
// kinds that have replicas and kinds that have none must contain every kind of ListWorkloads. TORPOR_UPDATE=1 completes
// the lists.
func TestTextsListEveryWorkload(t *testing.T) {
	lists := 0
	for _, name := range listTextFiles(t) {
		file := filepath.Join(repositoryRoot, name)
		found, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text, n, err := completeLists(ListWorkloads(), string(found), name)
		if lists += n; err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		expectText(t, file, string(found), text)
	}
	if lists < leastTextLists {
		t.Errorf("expected at least %d lists of workloads in texts, found %d; correct the pattern of this test", leastTextLists, lists)
	}
}

// completeLists returns the text of a file with all workloads in each of its lists, and the number of these lists.
func completeLists(workloads Registry, text, name string) (completed string, lists int, err error) {
	// A change moves only the text that follows it.
	for from := 0; ; {
		at := kindList.FindStringIndex(text[from:])
		if at == nil {
			return text, lists, nil
		}
		start, end := from+at[0], from+at[1]
		from = end
		missing := listMissing(workloads, text[start:end])
		if missing == nil {
			continue
		}
		if lists++; len(missing) == 0 {
			continue
		}
		list, err := completeList(workloads, text[start:end])
		if err != nil {
			return "", lists, err
		}
		text, from = replaceInText(text, textSpan{start, end}, list, name), start+len(list)
	}
}

// listMissing returns the workloads that a list of kinds lacks. It returns nil for a list of only kinds with
// replicas, or of only kinds without, since that list does not mean all workloads.
func listMissing(workloads Registry, list string) []string {
	missing, isAbout := []string{}, map[bool]bool{}
	for _, k := range workloads {
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

// completeList replaces the workloads in a list by all workloads, and keeps its number, articles and conjunction.
func completeList(workloads Registry, list string) (string, error) {
	kinds := kindNames(workloads)
	names := regexp.MustCompile(`\b(?:`+strings.Join(kinds, "|")+`)s?\b`).FindAllStringIndex(list, -1)
	separators := []string{}
	for i := range names[1:] {
		separator := foldSpace(list[names[i][1]:names[i+1][0]])
		if regexp.MustCompile(`[A-Z]`).MatchString(separator) {
			return "", errors.New("expected the workloads next to each other in a list, found another kind between them; move it: " + list)
		}
		separators = append(separators, separator)
	}
	between, last := separators[0], separators[len(separators)-1]
	if len(separators) == 1 {
		between = ", "
	}
	var made strings.Builder
	for i, kind := range kinds {
		separator := between
		switch i {
		case 0:
			separator = ""
		case len(kinds) - 1:
			separator = last
		}
		if strings.HasSuffix(separator, " a ") && strings.ContainsAny(kind[:1], "AEIOU") {
			separator = strings.TrimSuffix(separator, "a ") + "an "
		}
		made.WriteString(separator + kind)
		if list[names[0][1]-1] == 's' {
			made.WriteByte('s')
		}
	}
	return made.String() + list[names[len(names)-1][1]:], nil
}

func kindNames(r Registry) (names []string) {
	for _, k := range r {
		names = append(names, k.GVK().Kind)
	}
	return names
}

// TestCompleteLists has texts before and after all workloads are added to their lists.
func TestCompleteLists(t *testing.T) {
	workloads := NewRegistry(switched[deployments]{}, switched[statefulSets]{}, switched[cronJobs]{})
	long := strings.Repeat("word ", 16)
	for _, row := range []struct{ name, text, want string }{
		{"a.md", "Deployments and CronJobs stop.\n", "Deployments, StatefulSets and CronJobs stop.\n"},
		{"a.md", "All Deployments, CronJobs, databases\nand more.\n", "All Deployments, StatefulSets, CronJobs, databases and more.\n"},
		{"a.md", "A Deployment or a\nCronJob stops.\n\nNext.\n", "A Deployment, StatefulSet or a CronJob stops.\n\nNext.\n"},
		{"a.md", "- " + long + "Deployments and\n  CronJobs.\n- b\n", "- " + long + "Deployments,\n  StatefulSets and CronJobs.\n- b\n"},
		{"a.md", "| " + long + "Deployment, CronJob | b |\n", "| " + long + "Deployment, StatefulSet, CronJob | b |\n"},
		{"a.yaml", "# A Deployment, a CronJob\n# or b.\nc: d\n", "# A Deployment, StatefulSet, a CronJob or b.\nc: d\n"},
		{"a.go", "\t// " + long + long[:20] + "Deployments,\n\t// CronJobs.\n\tint a\n", "\t// " + long + long[:20] + "Deployments,\n\t// StatefulSets, CronJobs.\n\tint a\n"},
		{"a.md", "Deployments and StatefulSets have replicas.\n", "Deployments and StatefulSets have replicas.\n"},
	} {
		if found, _, err := completeLists(workloads, row.text, row.name); err != nil || found != row.want {
			t.Errorf("%q: expected %q, found %q (%v)", row.text, row.want, found, err)
		}
	}
	if _, _, err := completeLists(workloads, "Deployments, CFApps, CronJobs\n", "a.md"); err == nil {
		t.Error("expected an error for another kind between workloads, found none")
	}
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
