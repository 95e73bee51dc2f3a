// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

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

func TestOneSidedSupersedingIsSeen(t *testing.T) {
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

// findNumbers are the four-digit numbers on the lines that match.
func findNumbers(text, line string) []string {
	var found []string
	for _, l := range regexp.MustCompile(line).FindAllString(text, -1) {
		found = append(found, regexp.MustCompile(`\b\d{4}\b`).FindAllString(l, -1)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// findOneSided finds superseding that only one of the two records states.
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
