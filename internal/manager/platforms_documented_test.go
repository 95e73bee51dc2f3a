// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	cloudsFolder = "../../docs/clouds"
	// generatedTable and generatedTableEnd enclose the generated table in docs/clouds/README.md.
	generatedTable    = "<!-- generated from the code by make generate -->\n"
	generatedTableEnd = "<!-- end of what is generated -->\n"
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
	path := filepath.Join(cloudsFolder, "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), generatedTable)
	_, tail, isEnclosed := strings.Cut(rest, generatedTableEnd)
	if !isEnclosed {
		t.Fatalf("expected %q and %q in docs/clouds/README.md, found one or none", generatedTable, generatedTableEnd)
	}
	want := head + generatedTable + table.String() + generatedTableEnd + tail
	if os.Getenv("TORPOR_UPDATE") == "1" {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("expected docs/clouds/README.md to match the code, found it stale; run make generate (-want +found):\n%s", diff)
	}
}
