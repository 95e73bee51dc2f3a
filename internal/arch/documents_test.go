// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	licenseLine     = "// SPDX-License-Identifier: Apache-2.0\n"
	maxTourLines    = 120
	maxTourWords    = 900
	tourOfTheHouse  = "docs/architecture.md"
	newcomersReadme = "README.md"
)

func TestPackagesAreDocumentedOnce(t *testing.T) {
	comments := map[string]int{}
	for _, s := range parseSources(t) {
		if s.isTest() {
			continue
		}
		comments[s.folder()] += 0 // A package without a comment counts too.
		if s.file.Doc == nil {
			continue
		}
		comments[s.folder()]++
		want := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			want = "Command " + path.Base(s.folder()) + " "
		}
		if !strings.HasPrefix(s.file.Doc.Text(), want) {
			t.Errorf("%s: expected the package comment to begin with %q", s.path, want)
		}
	}
	for dir, n := range comments {
		if n != 1 {
			t.Errorf("%s: expected one package comment, found %d", dir, n)
		}
	}
}

func TestFilesNameTheirLicense(t *testing.T) {
	for _, s := range parseSources(t) {
		ok := strings.HasPrefix(s.text, licenseLine+"\n")
		if s.isGenerated() { // Its generator may put build constraints first.
			head, _, _ := strings.Cut(s.text, "\npackage ")
			ok = strings.Contains(head, licenseLine)
		}
		if !ok {
			t.Errorf("%s: expected the first line %q and an empty line", s.path, strings.TrimSpace(licenseLine))
		}
	}
}

func TestTheTourStaysShort(t *testing.T) {
	if !fileExists(tourOfTheHouse) {
		t.Fatalf("expected %s, found nothing", tourOfTheHouse)
	}
	text := readFile(t, tourOfTheHouse)
	if lines := strings.Count(text, "\n"); lines > maxTourLines {
		t.Errorf("%s: expected at most %d lines, which are two pages, found %d", tourOfTheHouse, maxTourLines, lines)
	}
	if words := len(strings.Fields(text)); words > maxTourWords {
		t.Errorf("%s: expected at most %d words, which are two pages, found %d", tourOfTheHouse, maxTourWords, words)
	}
}

func TestPathsInDocumentsExist(t *testing.T) {
	if !fileExists(newcomersReadme) {
		t.Errorf("expected %s, found nothing", newcomersReadme)
	}
	for _, doc := range listFiles(t) {
		isDoc := slices.Contains([]string{newcomersReadme, "CONTRIBUTING.md"}, doc) || strings.HasPrefix(doc, "docs/") && path.Ext(doc) == ".md"
		if !isDoc {
			continue
		}
		text := withoutFences(readFile(t, doc))
		for _, named := range quotedPaths(text) {
			if !fileExists(named) && !matchesFiles(named) {
				t.Errorf("%s: names `%s`, which does not exist", doc, named)
			}
		}
		for _, target := range linkTargets(text) {
			if !fileExists(path.Join(path.Dir(doc), target)) {
				t.Errorf("%s: links to %s, which does not exist", doc, target)
			}
		}
	}
}

func TestPathsInDocumentsAreRecognised(t *testing.T) {
	text := withoutFences("See `internal/reconcile`, `api/hive/v1.ClusterDeployment`, `./local/...`, `docs/adr/0001-x.md:12`, [ADR](../adr/0001-x.md#why),\n" +
		"not `make test`, `hive.openshift.io/v1`, `internal/<feature>`, [a site](https://example.com/a) or [below](#below).\n```\n`internal/fenced`\n```\n")
	if got, want := quotedPaths(text), []string{"internal/reconcile", "api/hive/v1", "local", "docs/adr/0001-x.md"}; !slices.Equal(got, want) {
		t.Errorf("expected %q, found %q", want, got)
	}
	if got, want := linkTargets(text), []string{"../adr/0001-x.md"}; !slices.Equal(got, want) {
		t.Errorf("expected %q, found %q", want, got)
	}
}

// quotedPaths are the words in backticks that begin with a folder of this repository, read from its root.
// A trailing line number, pattern or exported name of Go is no part of the path.
func quotedPaths(text string) []string {
	folders := []string{"api", "actuator", "conditional", "cmd", "internal", "config", "charts", "docs", "local", ".ci"}
	quoted := regexp.MustCompile("`([^`\\s]+)`")
	suffix := regexp.MustCompile(`(:\d+|/\.\.\.|/|\.[A-Z]\w*)$`)
	var found []string
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		folder, _, isPath := strings.Cut(strings.TrimPrefix(m[1], "./"), "/")
		if isPath && slices.Contains(folders, folder) && !strings.ContainsAny(m[1], "<>…{}$") {
			found = append(found, suffix.ReplaceAllString(path.Clean(m[1]), ""))
		}
	}
	return found
}

// linkTargets are the files that a document links to, without places inside them.
func linkTargets(text string) []string {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	var found []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target != "" && !strings.Contains(target, "://") && !strings.HasPrefix(target, "mailto:") {
			found = append(found, target)
		}
	}
	return found
}

func matchesFiles(pattern string) bool {
	found, err := filepath.Glob(filepath.Join(repositoryRoot, filepath.FromSlash(pattern)))
	return err == nil && len(found) > 0
}

// withoutFences drops the blocks of code, which show commands and output.
func withoutFences(text string) string {
	return regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```").ReplaceAllString(text, "")
}
