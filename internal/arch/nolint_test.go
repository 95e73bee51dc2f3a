// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"regexp"
	"strings"
	"testing"
)

// maxNolint is how many exceptions from the linters there are. It only ever goes down.
const maxNolint = 1

func TestExceptionsFromLintersAreFewAndExplained(t *testing.T) {
	explained := regexp.MustCompile(`^//nolint:[a-z0-9,]+ // \S.*\.$`)
	found := 0
	for _, s := range handwritten(t) {
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				if !strings.HasPrefix(strings.TrimLeft(c.Text, "/ \t"), "nolint") {
					continue
				}
				found++
				if !explained.MatchString(c.Text) {
					t.Errorf("%s: expected \"//nolint:linter // Reason.\", found %q", s.at(c), c.Text)
				}
			}
		}
	}
	if found > maxNolint {
		t.Errorf("expected at most %d nolint marks, found %d; mend what the linter found", maxNolint, found)
	}
}
