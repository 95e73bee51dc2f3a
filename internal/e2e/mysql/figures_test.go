// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeJSON writes figures into the folder TORPOR_BENCH_DIR, and shows them.
func writeJSON(t *testing.T, name string, figures any) {
	t.Helper()
	text, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s:\n%s", name, text)
	dir := os.Getenv("TORPOR_BENCH_DIR")
	if dir == "" {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// lastLines returns the end of a text.
func lastLines(text string, lines int) string {
	all := slices.Collect(strings.Lines(text))
	return strings.Join(all[max(0, len(all)-lines):], "")
}
