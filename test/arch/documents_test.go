// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	licenseLine     = "// SPDX-License-Identifier: Apache-2.0\n"
	maxTourLines    = 120
	maxTourWords    = 900
	tourOfTheHouse  = "docs/architecture.md"
	newcomersReadme = "README.md"

	headingOfPackages = "\n## Every package\n"
)

func TestPackagesAreDocumentedOnce(t *testing.T) {
	comments := map[string]int{}
	for _, s := range parseSources(t) {
		if s.isTest() {
			continue
		}
		comments[s.folder()] += 0 // Packages without a comment get an entry, too.
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
		if s.isGenerated() { // A generator may write build constraints above the license.
			head, _, _ := strings.Cut(s.text, "\npackage ")
			ok = strings.Contains(head, licenseLine)
		}
		if !ok {
			t.Errorf("%s: expected the first line %q and an empty line", s.path, strings.TrimSpace(licenseLine))
		}
	}
}

func TestArchitecturePageStaysShort(t *testing.T) {
	if !fileExists(tourOfTheHouse) {
		t.Fatalf("expected %s, found nothing", tourOfTheHouse)
	}
	text, _, _ := strings.Cut(readFile(t, tourOfTheHouse), headingOfPackages) // The limit does not apply to the list of packages.
	if lines := strings.Count(text, "\n"); lines > maxTourLines {
		t.Errorf("%s: expected at most %d lines, which are two pages, found %d", tourOfTheHouse, maxTourLines, lines)
	}
	if words := len(strings.Fields(text)); words > maxTourWords {
		t.Errorf("%s: expected at most %d words, which are two pages, found %d", tourOfTheHouse, maxTourWords, words)
	}
}

// TestArchitecturePageNamesEveryPackage compares the packages of the root module with the rows of the tour.
func TestArchitecturePageNamesEveryPackage(t *testing.T) {
	_, list, _ := strings.Cut(readFile(t, tourOfTheHouse), headingOfPackages)
	rows := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| \\S.* \\|$").FindAllStringSubmatch(list, -1) {
		rows[row[1]]++
	}
	for _, pkg := range runCommand(t, ".", "go", "list", "./...") {
		name := strings.TrimPrefix(pkg, modulePrefix)
		if rows[name] != 1 {
			t.Errorf("%s: expected one row for the package %s, found %d", tourOfTheHouse, name, rows[name])
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s: expected rows for packages, found %s, which is none; remove the row", tourOfTheHouse, name)
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

// Every test that a document names in backticks, with or without a row key, must exist.
func TestTestsInDocumentsExist(t *testing.T) {
	names, texts := map[string]bool{}, strings.Builder{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, file := range listFiles(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		text := readFile(t, file)
		texts.WriteString(text)
		for _, m := range function.FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
	}
	for _, doc := range listFiles(t) {
		if !strings.HasPrefix(doc, "docs/") || path.Ext(doc) != ".md" {
			continue
		}
		for _, named := range quotedTests(withoutFences(readFile(t, doc))) {
			test, row, hasRow := strings.Cut(named, "/")
			isRow := !hasRow || strings.Contains(texts.String(), strconv.Quote(strings.ReplaceAll(row, "_", " "))) ||
				matchesFiles("internal/*/*/testdata/"+row+".txt")
			if !names[test] || !isRow {
				t.Errorf("%s: names the test `%s`, which does not exist", doc, named)
			}
		}
	}
}

func TestTestsInDocumentsAreRecognised(t *testing.T) {
	text := withoutFences("See `TestFaults`, `TestFaults/all_calls`, not TestOf, `RUN=TestName`, `Testing` or `make test`.\n```\n`TestFenced`\n```\n")
	if got, want := quotedTests(text), []string{"TestFaults", "TestFaults/all_calls"}; !slices.Equal(got, want) {
		t.Errorf("expected %q, found %q", want, got)
	}
}

// quotedTests returns the tests in backticks.
func quotedTests(text string) (found []string) {
	for _, m := range regexp.MustCompile("`(Test[A-Z]\\w*(?:/[^`]+)?)`").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
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

// quotedPaths returns the words in backticks that begin with a folder of this repository, relative to its
// root. A trailing line number, pattern or exported name of Go is not part of the path.
func quotedPaths(text string) []string {
	folders := []string{"api", "actuator", "conditional", "cmd", "internal", "config", "charts", "docs", "local", "test", "hack", ".ci"}
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

// linkTargets returns the files that a document links to, without anchors.
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

// decisionRecord is one record of docs/adr.
type decisionRecord struct {
	number, text             string
	supersedes, supersededBy []string
}

func TestDecisionRecordsAreNumberedAndDated(t *testing.T) {
	records := readDecisionRecords(t)
	for i, d := range records {
		if want := fmt.Sprintf("%04d", i+1); d.number != want {
			t.Errorf("docs/adr: expected number %s next, found %s; numbers have no gaps and are used once", want, d.number)
		}
		if !regexp.MustCompile(`(?m)^Status: (proposed|accepted|rejected|superseded by )`).MatchString(d.text) {
			t.Errorf("docs/adr/%s: expected a line \"Status: proposed\", accepted, rejected or \"superseded by NNNN\"", d.number)
		}
		date := regexp.MustCompile(`(?m)^Date: (\S+)$`).FindStringSubmatch(d.text)
		if date == nil {
			t.Errorf("docs/adr/%s: expected a line \"Date: 2006-01-02\", found none", d.number)
		} else if _, err := time.Parse(time.DateOnly, date[1]); err != nil {
			t.Errorf("docs/adr/%s: %v", d.number, err)
		}
	}
	for _, one := range findOneSided(records) {
		t.Error("docs/adr: " + one)
	}
}

func TestOneSidedSupersedingIsFound(t *testing.T) {
	first, second := parseDecision("0001", "Status: superseded by [0002](0002-b.md)\n"), parseDecision("0002", "Supersedes: 0001\n")
	if found := findOneSided([]decisionRecord{first, second}); len(found) != 0 {
		t.Errorf("expected nothing, found %q", found)
	}
	if found := findOneSided([]decisionRecord{first, parseDecision("0002", "")}); len(found) != 1 {
		t.Errorf("expected one finding, found %q", found)
	}
	if found := findOneSided([]decisionRecord{parseDecision("0001", ""), second}); len(found) != 1 {
		t.Errorf("expected one finding, found %q", found)
	}
}

// readDecisionRecords reads the records in the order of their files.
func readDecisionRecords(t *testing.T) []decisionRecord {
	t.Helper()
	name := regexp.MustCompile(`^(\d{4})-[a-z0-9-]+\.md$`)
	var all []decisionRecord
	for _, file := range listFiles(t) {
		if path.Dir(file) != "docs/adr" || path.Base(file) == "README.md" {
			continue
		}
		m := name.FindStringSubmatch(path.Base(file))
		if m == nil {
			t.Errorf("%s: expected a name such as 0001-a-decision.md", file)
			continue
		}
		all = append(all, parseDecision(m[1], readFile(t, file)))
	}
	if len(all) == 0 {
		t.Fatal("docs/adr: expected decision records such as 0001-a-decision.md, found none")
	}
	return all
}

func parseDecision(number, text string) decisionRecord {
	return decisionRecord{
		number: number, text: text,
		supersedes:   findNumbers(text, `(?m)^Supersedes:.*$`),
		supersededBy: findNumbers(text, `(?m)^Status: superseded by .*$`),
	}
}

// findNumbers returns the four-digit numbers on the lines that match.
func findNumbers(text, line string) []string {
	var found []string
	for _, l := range regexp.MustCompile(line).FindAllString(text, -1) {
		found = append(found, regexp.MustCompile(`\b\d{4}\b`).FindAllString(l, -1)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// findOneSided returns pairs of records of which only one states that it supersedes or is superseded.
func findOneSided(records []decisionRecord) []string {
	statements := map[string][]string{}
	for _, d := range records {
		for _, old := range d.supersedes {
			statements[old+" by "+d.number] = append(statements[old+" by "+d.number], "Supersedes of "+d.number)
		}
		for _, successor := range d.supersededBy {
			statements[d.number+" by "+successor] = append(statements[d.number+" by "+successor], "Status of "+d.number)
		}
	}
	var found []string
	for what, where := range statements {
		if len(where) != 2 {
			found = append(found, fmt.Sprintf("only the %s says that %s is superseded", strings.Join(where, ", "), what))
		}
	}
	return found
}
