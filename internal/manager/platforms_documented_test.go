// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

const (
	cloudsFolder = "../../docs/clouds"
	// generatedTable and generatedTableEnd enclose the generated table of a page in docs/clouds.
	generatedTable    = "<!-- generated from the code by make generate -->\n"
	generatedTableEnd = "<!-- end of the generated part -->\n"
)

// TestPlatformsAreDocumented compares the table of platforms with the descriptions of their actuators; TORPOR_UPDATE=1
// writes it again. Each platform must have a page, too.
func TestPlatformsAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| platform | machines are found by | stopped means | credentials | calls |\n|---|---|---|---|---|\n")
	for _, a := range listPlatforms(cloudConfig{}) {
		d, page := a.Describe(), a.Platform()+".md"
		if _, err := os.Stat(filepath.Join(cloudsFolder, page)); err != nil {
			t.Errorf("%s: expected a page docs/clouds/%s, found none: %v", a.Platform(), page, err)
		}
		for what, text := range map[string]string{"FoundBy": d.FoundBy, "Stopped": d.Stopped, "Credentials": d.Credentials, "Calls": d.Calls} {
			if text == "" || strings.ContainsAny(text, "|\n") {
				t.Errorf("%s: expected words for a cell of a table as %s, found %q", a.Platform(), what, text)
			}
		}
		fmt.Fprintf(&table, "| [%s](%s) | %s | %s | %s | %s |\n", a.Platform(), page, d.FoundBy, d.Stopped, d.Credentials, d.Calls)
	}
	compareTable(t, "README.md", table.String())
}

// TestErrorsOfPlatformsAreDocumented compares the table of errors on the page of each platform with the table that its
// actuator reads; TORPOR_UPDATE=1 writes it again.
func TestErrorsOfPlatformsAreDocumented(t *testing.T) {
	for _, a := range listPlatforms(cloudConfig{}) {
		var table strings.Builder
		table.WriteString("| error | class | retry |\n|---|---|---|\n")
		described := a.Describe().Errors
		if len(described) == 0 {
			t.Errorf("%s: expected the description of its errors, found none", a.Platform())
		}
		for _, row := range described {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", row.Errors, row.Class, describeRetry(row.Class))
		}
		compareTable(t, a.Platform()+".md", table.String())
	}
}

// describeRetry returns how often a cloud is asked again after an error.
func describeRetry(class actuator.ErrorClass) string {
	retry := hibernation.RetryOf(class)
	first := strings.TrimSuffix(retry.First.String(), "m0s")
	if first != retry.First.String() {
		first += "m"
	}
	if retry.Longest == 0 {
		return "every " + first
	}
	return fmt.Sprintf("%s to %dm", first, int(retry.Longest.Minutes()))
}

// compareTable compares the generated table of a page with the wanted one.
func compareTable(t *testing.T, page, table string) {
	t.Helper()
	path := filepath.Join(cloudsFolder, page)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), generatedTable)
	_, tail, isEnclosed := strings.Cut(rest, generatedTableEnd)
	if !isEnclosed {
		t.Fatalf("expected %q and %q in docs/clouds/%s, found one or none", generatedTable, generatedTableEnd, page)
	}
	want := head + generatedTable + table + generatedTableEnd + tail
	if os.Getenv("TORPOR_UPDATE") == "1" {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("expected docs/clouds/%s to match the code, found it stale; run make generate (-want +found):\n%s", page, diff)
	}
}
