// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

const (
	cloudsFolder = "../../docs/clouds"
	// generatedTable and generatedTableEnd enclose the generated table of a page in docs/clouds.
	generatedTable    = "<!-- generated from the code by make generate -->\n"
	generatedTableEnd = "<!-- end of the generated part -->\n"
	// statusesHeading precedes the table of HTTP statuses that several platforms share.
	statusesHeading = "\n### HTTP statuses\n"
	// sharedRow replaces these statuses in the table of a platform.
	sharedRow = "| [HTTP statuses](README.md#http-statuses) | as in that table |\n"
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

// TestErrorsOfPlatformsAreDocumented compares the table of errors on the page of each platform with the table that
// its actuator uses; TORPOR_UPDATE=1 writes it again. The shared rows of HTTP statuses are replaced with one row
// that links to the page of all platforms. The last row, which is the same for all platforms, is only on that page.
func TestErrorsOfPlatformsAreDocumented(t *testing.T) {
	shared, last := describeStatuses()
	for _, a := range listPlatforms(cloudConfig{}) {
		described := a.Describe().Errors
		if len(described) < 2 {
			t.Errorf("%s: expected the description of its errors, found %v", a.Platform(), described)
			continue
		}
		if end := len(described) - 1; described[end] != last {
			t.Errorf("%s: expected %v as its last row, found %v", a.Platform(), last, described[end])
		}
		compareTable(t, a.Platform()+".md", errorTable(described[:len(described)-1], shared))
	}
}

// TestStatusesOfPlatformsAreDocumented compares the table of HTTP statuses that platforms share; TORPOR_UPDATE=1 writes
// it again.
func TestStatusesOfPlatformsAreDocumented(t *testing.T) {
	shared, _ := describeStatuses()
	compareTableAfter(t, "README.md", statusesHeading, errorTable(shared, nil))
}

// TestRetriesAreDocumented compares the documented retry intervals of the error classes with the code.
func TestRetriesAreDocumented(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(cloudsFolder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		for class := range strings.SplitSeq(cells[0], ", ") {
			found[class] = cells[len(cells)-1]
		}
	}
	for _, class := range []actuator.ErrorClass{
		actuator.CredentialsMissing, actuator.CredentialsInvalid, actuator.PermissionDenied, actuator.Unreachable,
		actuator.Throttled, actuator.NoCapacity, actuator.WrongState, actuator.NotFound, actuator.Other,
	} {
		if want := describeRetry(class); found[string(class)] != want {
			t.Errorf("docs/clouds/README.md: expected %q as the retry of %q, found %q", want, class, found[string(class)])
		}
	}
}

// describeStatuses describes the rows of HTTP statuses that platforms share, and the last row of every table.
func describeStatuses() (shared []actuator.ErrorDescription, last actuator.ErrorDescription) {
	described := errortable.ByStatus().Describe()
	return described[:len(described)-1], described[len(described)-1]
}

// errorTable returns a table with the rows. Shared rows, if they all occur in a sequence, are replaced with one row
// with a link.
func errorTable(rows, shared []actuator.ErrorDescription) string {
	var table strings.Builder
	table.WriteString("| error | class |\n|---|---|\n")
	for i := 0; i < len(rows); i++ {
		if end := i + len(shared); len(shared) > 0 && end <= len(rows) && slices.Equal(rows[i:end], shared) {
			table.WriteString(sharedRow)
			i = end - 1
			continue
		}
		fmt.Fprintf(&table, "| %s | %s |\n", rows[i].Errors, rows[i].Class)
	}
	return table.String()
}

func TestSharedRowsOfErrorsAreOneRow(t *testing.T) {
	row := func(errors string) actuator.ErrorDescription {
		return actuator.ErrorDescription{Errors: errors, Class: actuator.Other}
	}
	const head, link = "| error | class |\n|---|---|\n", sharedRow
	shared := []actuator.ErrorDescription{row("status 1"), row("status 2")}
	for want, rows := range map[string][]actuator.ErrorDescription{
		head + "| a | other |\n" + link + "| b | other |\n": {row("a"), shared[0], shared[1], row("b")},
		head + link:                     shared,
		head + "| status 1 | other |\n": shared[:1],
		head + "| status 2 | other |\n| status 1 | other |\n": {shared[1], shared[0]},
	} {
		if found := errorTable(rows, shared); found != want {
			t.Errorf("%v: expected\n%s\nfound\n%s", rows, want, found)
		}
	}
}

// describeRetry returns the intervals at which a cloud is queried again after an error.
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

// compareTable compares the first generated table of a page with the expected one.
func compareTable(t *testing.T, page, table string) {
	t.Helper()
	compareTableAfter(t, page, "", table)
}

// compareTableAfter compares the first generated table after a heading with the expected one.
func compareTableAfter(t *testing.T, page, heading, table string) {
	t.Helper()
	path := filepath.Join(cloudsFolder, page)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, section, hasHeading := strings.Cut(string(text), heading)
	if !hasHeading {
		t.Fatalf("expected %q in docs/clouds/%s, found none", heading, page)
	}
	head, rest, _ := strings.Cut(section, generatedTable)
	_, tail, isEnclosed := strings.Cut(rest, generatedTableEnd)
	if !isEnclosed {
		t.Fatalf("expected %q and %q in docs/clouds/%s, found one or none", generatedTable, generatedTableEnd, page)
	}
	want := before + heading + head + generatedTable + table + generatedTableEnd + tail
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
