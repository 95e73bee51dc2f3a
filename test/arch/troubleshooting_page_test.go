// SPDX-License-Identifier: Apache-2.0

package arch

import (
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
	generatedReasons    = "<!-- the meanings are generated from the code by make generate; only rows with advice are kept -->\n"
)

// TestTroubleshootingPageHasTheMeanings compares the meanings of the reasons with those of the code, and keeps the
// advice that is written next to them; TORPOR_UPDATE=1 rewrites the page.
func TestTroubleshootingPageHasTheMeanings(t *testing.T) {
	byHand, found, _ := strings.Cut(readFile(t, troubleshootingPage), generatedReasons)
	advice := readAdvice(found)
	var page strings.Builder
	page.WriteString("\n| reason | means | what to do |\n|---|---|---|\n")
	meanings := meaningsOfReasons(t)
	for _, name := range slices.Sorted(maps.Keys(meanings)) {
		if advice[name] == "" {
			continue
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", name, strings.ReplaceAll(meanings[name], "|", `\|`), advice[name])
		delete(advice, name)
	}
	if found == page.String() {
		return
	}
	if os.Getenv("TORPOR_UPDATE") != "1" {
		t.Errorf("expected %s to have the meanings of the code, found it stale (advice without a reason: %q); run make generate",
			troubleshootingPage, slices.Sorted(maps.Keys(advice)))
		return
	}
	if err := os.WriteFile(filepath.Join("..", "..", troubleshootingPage), []byte(byHand+generatedReasons+page.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// meaningsOfReasons returns the comments of the reasons in the code. Several constants may have one reason.
func meaningsOfReasons(t *testing.T) map[string]string {
	t.Helper()
	meanings := map[string][]string{}
	for _, e := range apiConstants(t)["Reason"] {
		if !slices.Contains(meanings[e.name], e.meaning) {
			meanings[e.name] = append(meanings[e.name], e.meaning)
		}
	}
	joined := map[string]string{}
	for name, all := range meanings {
		slices.Sort(all)
		joined[name] = strings.Join(all, " Or: ")
	}
	return joined
}

// readAdvice returns the third column by the first.
func readAdvice(table string) map[string]string {
	advice := map[string]string{}
	for line := range strings.Lines(table) {
		// A bar in a cell is escaped, so that " | " only stands between cells.
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), " |"), " | ")
		name, ok := strings.CutPrefix(cells[0], "| `")
		if ok && len(cells) == 3 {
			advice[strings.TrimSuffix(name, "`")] = cells[2]
		}
	}
	return advice
}

// A reason that reports a problem has advice.
func TestTroubleHasAdvice(t *testing.T) {
	_, found, _ := strings.Cut(readFile(t, troubleshootingPage), generatedReasons)
	advice, isTrouble := readAdvice(found), regexp.MustCompile(`invalid|cannot be|could not be|no permission|does not answer|does not serve|rejects a|rejected|fails|failure`)
	problems := 0
	for name, meaning := range meaningsOfReasons(t) {
		if !isTrouble.MatchString(meaning) {
			continue
		}
		problems++
		if advice[name] == "" {
			t.Errorf("%s: expected what to do about %s, found none; write a row for it", troubleshootingPage, name)
		}
	}
	const fewestProblems = 20 // Other words in the meanings would hide problems from this test.
	if problems < fewestProblems {
		t.Errorf("%s: expected at least %d reasons that report a problem, found %d; adapt the pattern to the words in use", troubleshootingPage, fewestProblems, problems)
	}
}

func TestAdviceIsKept(t *testing.T) {
	found := readAdvice("| reason | means | what to do |\n|---|---|---|\n| `A` | a \\| b | Do this. |\n")
	if want := map[string]string{"A": "Do this."}; !maps.Equal(found, want) {
		t.Errorf("expected %q, found %q", want, found)
	}
}
