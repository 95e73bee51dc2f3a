// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"strings"
	"testing"
)

const (
	maxFunctionLines = 60
	maxFileLines     = 400
	maxPackageFiles  = 12
)

func TestSizes(t *testing.T) {
	files := map[string]int{}
	for _, s := range handwritten(t) {
		if s.isTest() || s.isAPI() {
			continue
		}
		files[s.dir()]++
		if lines := strings.Count(s.text, "\n"); lines > maxFileLines {
			t.Errorf("%s: expected at most %d lines, found %d; split it along the data's way", s.path, maxFileLines, lines)
		}
		for _, f := range functions(s) {
			if lines := s.line(f.End()) - s.line(f.Pos()) + 1; lines > maxFunctionLines {
				t.Errorf("%s: expected at most %d lines in %s, found %d", s.at(f), maxFunctionLines, f.Name.Name, lines)
			}
		}
	}
	for dir, n := range files {
		if n > maxPackageFiles {
			t.Errorf("%s: expected at most %d files in a package, found %d; it holds more than one thing", dir, maxPackageFiles, n)
		}
	}
}
