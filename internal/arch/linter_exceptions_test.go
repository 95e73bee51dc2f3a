// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The exceptions from the linters, by a mark in the code and by a path in the configuration. Both only ever go down.
const (
	maxNolint           = 1
	maxLinterExclusions = 23
)

func TestExceptionsFromLintersAreFewAndExplained(t *testing.T) {
	explained := regexp.MustCompile(`^//nolint:[a-z0-9,]+ // \S.*\.$`)
	found := 0
	for _, s := range handwrittenSources(t) {
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				if !strings.HasPrefix(strings.TrimLeft(c.Text, "/ \t"), "nolint") {
					continue
				}
				found++
				if !explained.MatchString(c.Text) {
					t.Errorf("%s: expected \"//nolint:linter // Reason.\", found %q", s.position(c), c.Text)
				}
			}
		}
	}
	if found > maxNolint {
		t.Errorf("expected at most %d nolint marks, found %d; mend what the linter found", maxNolint, found)
	}
}

func TestExclusionsOfLintersAreFewAndExplained(t *testing.T) {
	files := listFiles(t)
	rules := strings.Split(readFile(t, ".golangci.yml"), "\n      - path: ")[1:]
	for _, rule := range rules {
		pattern, _, _ := strings.Cut(rule, "\n")
		if !strings.Contains(rule, " # ") {
			t.Errorf(".golangci.yml: expected a reason for the exclusion of %s, found none", pattern)
		}
		if !slices.ContainsFunc(files, regexp.MustCompile(pattern).MatchString) {
			t.Errorf(".golangci.yml: expected a file for the exclusion of %s, found none; remove it", pattern)
		}
	}
	if len(rules) == 0 || len(rules) > maxLinterExclusions {
		t.Errorf(".golangci.yml: expected 1 to %d exclusions, found %d; mend what the linter found", maxLinterExclusions, len(rules))
	}
}
