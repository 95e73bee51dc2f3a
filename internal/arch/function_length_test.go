// SPDX-License-Identifier: Apache-2.0

package arch

import "testing"

const maxFunctionLines = 60

// A file is as long as its subject, and a package holds one subject however many files that takes. Only functions have a limit.
func TestFunctionsAreShort(t *testing.T) {
	for _, s := range handwrittenSources(t) {
		if s.isTest() || s.isAPI() {
			continue
		}
		for _, f := range functionDecls(s) {
			if lines := s.lineOf(f.End()) - s.lineOf(f.Pos()) + 1; lines > maxFunctionLines {
				t.Errorf("%s: expected at most %d lines in %s, found %d", s.position(f), maxFunctionLines, f.Name.Name, lines)
			}
		}
	}
}
