// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/internal/cf/api/handlers"
)

const (
	tablesBegin = "<!-- generated from internal/cf/api/handlers by make generate; do not edit -->\n"
	tablesEnd   = "<!-- end -->\n"
)

// TestRoutesAreDocumented compares the tables in docs/cf.md with the route table. TORPOR_UPDATE=1 rewrites them.
func TestRoutesAreDocumented(t *testing.T) {
	var tables strings.Builder
	tables.WriteString("\nQuery parameters are listed after a colon.\n\n| request | what it does | rights of the caller |\n|---|---|---|\n")
	for _, r := range describeRoutes(t) {
		fmt.Fprintf(&tables, "| `%s` | %s | %s |\n", strings.Join(r.requests, "`, `"), r.description, r.rights)
	}
	tables.WriteString("\n| not implemented | why, or what to do instead |\n|---|---|\n")
	for _, a := range handlers.MissingFeatures() {
		fmt.Fprintf(&tables, "| %s | %s |\n", a.What, a.Why)
	}
	failing := 0
	for _, d := range korifiDifferences() {
		failing += d.specs
	}
	fmt.Fprintf(&tables, "\nOf the %d specs in Korifi's e2e suite, %d pass. The others:\n\n| Korifi's suite expects | specs | Torpor |\n|---|---|---|\n", korifiSpecs, korifiSpecs-failing)
	for _, d := range korifiDifferences() {
		fmt.Fprintf(&tables, "| %s | %d | %s |\n", d.expected, d.specs, d.why)
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

// describedRoutes is a row of a table in docs/cf.md.
type describedRoutes struct {
	requests            []string
	description, rights string
}

// describeRoutes describes the routes. Routes with the same description and rights share a row.
func describeRoutes(t *testing.T) []describedRoutes {
	t.Helper()
	var rows []describedRoutes
	for _, r := range handlers.Routes() {
		rights := cmp.Or(r.Rights, "none")
		if r.Public {
			rights = "no credentials"
		}
		if r.Description == "" {
			t.Errorf("%s %s: expected a description, found none", r.Method, r.Path)
		}
		request := r.Method + " " + strings.TrimSuffix(r.Path, "{$}")
		same := func(other describedRoutes) bool { return other.description == r.Description && other.rights == rights }
		if i := slices.IndexFunc(rows, same); i >= 0 {
			rows[i].requests = append(rows[i].requests, request)
			continue
		}
		rows = append(rows, describedRoutes{[]string{request}, r.Description, rights})
	}
	return rows
}
