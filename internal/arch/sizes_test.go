// SPDX-License-Identifier: Apache-2.0

package arch

import "testing"

const maxFunctionLines = 60

// A file is as long as its subject, and a package holds one subject however many files that takes. Only functions have a limit.
func TestFunctionsAreShort(t *testing.T) {
	for _, s := range handwritten(t) {
		if s.isTest() || s.isAPI() {
			continue
		}
		for _, f := range functions(s) {
			if lines := s.line(f.End()) - s.line(f.Pos()) + 1; lines > maxFunctionLines {
				t.Errorf("%s: expected at most %d lines in %s, found %d", s.at(f), maxFunctionLines, f.Name.Name, lines)
			}
		}
	}
}
