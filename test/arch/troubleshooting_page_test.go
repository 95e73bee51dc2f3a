// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	troubleshootingPage = "docs/troubleshooting.md"
	generatedReasons    = "<!-- the first two columns are generated from the code by make generate; write into the third -->\n"
	// noAdvice is the text of the third column if there is nothing to do.
	noAdvice = "–"
)

// TestTroubleshootingPageHasEveryReason compares the reasons with those of the code, and keeps the advice
// that is written next to them; TORPOR_UPDATE=1 rewrites the page.
func TestTroubleshootingPageHasEveryReason(t *testing.T) {
	byHand, found, _ := strings.Cut(readFile(t, troubleshootingPage), generatedReasons)
	advice := readAdvice(found)
	meanings := map[string][]string{}
	for _, e := range apiConstants(t)["Reason"] {
		if !slices.Contains(meanings[e.name], e.meaning) {
			meanings[e.name] = append(meanings[e.name], e.meaning)
		}
	}
	var page strings.Builder
	page.WriteString("\n| reason | means | what to do |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(meanings)) {
		slices.Sort(meanings[name])
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", name, strings.ReplaceAll(strings.Join(meanings[name], " Or: "), "|", `\|`), cmp.Or(advice[name], noAdvice))
		delete(advice, name)
	}
	if found == page.String() {
		return
	}
	if os.Getenv("TORPOR_UPDATE") != "1" {
		t.Errorf("expected %s to have every reason of the code, found it stale (advice without a reason: %q); run make generate", troubleshootingPage, slices.Sorted(maps.Keys(advice)))
		return
	}
	if err := os.WriteFile(filepath.Join("..", "..", troubleshootingPage), []byte(byHand+generatedReasons+page.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// readAdvice returns the third column by the first.
func readAdvice(table string) map[string]string {
	advice := map[string]string{}
	for line := range strings.Lines(table) {
		// A bar in a cell is escaped, so that " | " only stands between cells.
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), " |"), " | ")
		name, ok := strings.CutPrefix(cells[0], "| `")
		if ok && len(cells) == 3 && cells[2] != noAdvice {
			advice[strings.TrimSuffix(name, "`")] = cells[2]
		}
	}
	return advice
}

// A reason that reports a problem has advice.
func TestTroubleHasAdvice(t *testing.T) {
	_, found, _ := strings.Cut(readFile(t, troubleshootingPage), generatedReasons)
	advice, isTrouble := readAdvice(found), regexp.MustCompile(`invalid|cannot be|could not be|no permission|does not answer|does not serve|rejects a|fails|failure`)
	problems := 0
	for line := range strings.Lines(found) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		if !isTrouble.MatchString(line) {
			continue
		}
		problems++
		if advice[name] == "" {
			t.Errorf("%s: expected what to do about %s, found none; write it into the third column", troubleshootingPage, name)
		}
	}
	const fewestProblems = 20 // Other words in the meanings would hide problems from this test.
	if problems < fewestProblems {
		t.Errorf("%s: expected at least %d reasons that report a problem, found %d; adapt the pattern to the words in use", troubleshootingPage, fewestProblems, problems)
	}
}

func TestAdviceIsKept(t *testing.T) {
	found := readAdvice("| reason | means | what to do |\n|---|---|---|\n| `A` | a \\| b | Do this. |\n| `B` | b | – |\n")
	if want := map[string]string{"A": "Do this."}; !maps.Equal(found, want) {
		t.Errorf("expected %q, found %q", want, found)
	}
}
