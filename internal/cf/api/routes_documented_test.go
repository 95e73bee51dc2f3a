// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/internal/cf/api/handlers"
)

const (
	tablesBegin = "<!-- generated from internal/cf/api/handlers by make generate; do not edit -->\n"
	tablesEnd   = "<!-- end -->\n"
)

// TestRoutesAreDocumented compares the tables in docs/cf.md with the table of routes; TORPOR_UPDATE=1 rewrites them.
func TestRoutesAreDocumented(t *testing.T) {
	var tables strings.Builder
	tables.WriteString("\n| request | what it does | rights of the caller |\n|---|---|---|\n")
	for _, r := range handlers.Routes() {
		rights := r.Rights
		switch {
		case r.Public:
			rights = "none; no credentials either"
		case rights == "":
			rights = "none"
		}
		if r.Description == "" {
			t.Errorf("%s %s: expected a description, found none", r.Method, r.Path)
		}
		fmt.Fprintf(&tables, "| `%s %s` | %s | %s |\n", r.Method, strings.TrimSuffix(r.Path, "{$}"), r.Description, rights)
	}
	tables.WriteString("\n| not implemented | why |\n|---|---|\n")
	for _, a := range handlers.MissingFeatures() {
		fmt.Fprintf(&tables, "| %s | %s |\n", a.What, a.Why)
	}
	tables.WriteString("\n")
	path := filepath.Join("..", "..", "..", "docs", "cf.md")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(raw), tablesBegin)
	inside, after, closed := strings.Cut(rest, tablesEnd)
	if !found || !closed {
		t.Fatalf("expected the two marks in docs/cf.md, found one or none")
	}
	if os.Getenv("TORPOR_UPDATE") == "1" {
		if err := os.WriteFile(path, []byte(before+tablesBegin+tables.String()+tablesEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if inside != tables.String() {
		t.Error("expected docs/cf.md to match the table of routes, found it stale; run make generate")
	}
}
