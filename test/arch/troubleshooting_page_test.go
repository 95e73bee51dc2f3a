// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"go/ast"
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
	sortedReasons       = "<!-- rows are sorted, and rows without a reason in the code are removed, by make generate -->\n"
)

// TestTroubleshootingPageHasReasonsOfTheCode compares the reasons that have advice with those of the code, whose meanings
// are in docs/reference.md; TORPOR_UPDATE=1 rewrites the page.
func TestTroubleshootingPageHasReasonsOfTheCode(t *testing.T) {
	byHand, found, _ := strings.Cut(readFile(t, troubleshootingPage), sortedReasons)
	advice := readAdvice(found)
	var page strings.Builder
	page.WriteString("\n| reason | what to do |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(meaningsOfReasons(t))) {
		if advice[name] == "" {
			continue
		}
		fmt.Fprintf(&page, "| `%s` | %s |\n", name, advice[name])
		delete(advice, name)
	}
	if found == page.String() {
		return
	}
	if os.Getenv("TORPOR_UPDATE") != "1" {
		t.Errorf("expected %s to have reasons of the code in their order, found it stale (advice without a reason: %q); run make generate",
			troubleshootingPage, slices.Sorted(maps.Keys(advice)))
		return
	}
	if err := os.WriteFile(filepath.Join("..", "..", troubleshootingPage), []byte(byHand+sortedReasons+page.String()), 0o600); err != nil {
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

// readAdvice maps the first column of a table to the second one.
func readAdvice(table string) map[string]string {
	advice := map[string]string{}
	for line := range strings.Lines(table) {
		// A bar in a cell is escaped, so that " | " only stands between cells.
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), " |"), " | ")
		name, ok := strings.CutPrefix(cells[0], "| `")
		if ok && len(cells) == 2 {
			advice[strings.TrimSuffix(name, "`")] = cells[1]
		}
	}
	return advice
}

// Every reason that reports a problem must have advice on the page.
func TestProblemReasonsHaveAdvice(t *testing.T) {
	_, found, _ := strings.Cut(readFile(t, troubleshootingPage), sortedReasons)
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
	const fewestProblems = 20 // If comments described problems in other words, the pattern would miss them.
	if problems < fewestProblems {
		t.Errorf("%s: expected at least %d reasons that report a problem, found %d; adapt the pattern to the words in use", troubleshootingPage, fewestProblems, problems)
	}
}

func TestAdviceIsKept(t *testing.T) {
	found := readAdvice("| reason | what to do |\n|---|---|\n| `A` | Do a \\| b. |\n")
	if want := map[string]string{"A": `Do a \| b.`}; !maps.Equal(found, want) {
		t.Errorf("expected %q, found %q", want, found)
	}
}

// TestReasonsOfTheAPIAreUsed expects every reason of api/ to be used by the product. Otherwise the reference documents a
// reason that no condition has.
func TestReasonsOfTheAPIAreUsed(t *testing.T) {
	unused := map[string]bool{}
	for _, s := range handwrittenSources(t) {
		if s.isAPI() && !s.isTest() {
			eachConstant(s.file, func(spec *ast.ValueSpec, _ string) {
				if name := spec.Names[0].Name; strings.HasSuffix(name, "Reason") {
					unused[name] = true
				}
			})
		}
	}
	if len(unused) == 0 {
		t.Fatal("expected reasons in api/, found none")
	}
	for _, s := range handwrittenSources(t) {
		if s.isAPI() || s.isTest() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if use, ok := n.(*ast.SelectorExpr); ok {
				delete(unused, use.Sel.Name)
			}
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		t.Errorf("expected the product to use %s of api/, found no use; remove it, or use it where a constant repeats its value", name)
	}
}

// TestReasonsOfConditionsAreInTheAPI expects every constant reason of a condition to be declared in api/, where the
// reference finds it.
func TestReasonsOfConditionsAreInTheAPI(t *testing.T) {
	const decisions = "github.com/torpor-dev/torpor/internal/decision"
	own, uses := map[string]map[string]bool{}, 0
	for _, s := range handwrittenSources(t) {
		if s.isTest() {
			continue
		}
		if own[s.folder()] == nil {
			own[s.folder()] = map[string]bool{}
		}
		eachConstant(s.file, func(spec *ast.ValueSpec, _ string) {
			_, isText := unquote(spec.Values[0])
			own[s.folder()][spec.Names[0].Name] = isText
		})
	}
	for _, s := range handwrittenSources(t) {
		for _, use := range s.findUses(decisions, "True", "False", "Unknown") {
			uses++
			if s.isTest() {
				continue
			}
			if reason := s.firstArgument(use); own[s.folder()][reason] || strings.HasPrefix(reason, `"`) {
				t.Errorf("%s: expected a reason of api/, found %s", s.position(use), reason)
			}
		}
	}
	if uses == 0 {
		t.Error("expected conditions of decisions, found none; adapt the path of the package")
	}
}

// firstArgument returns the source of the first argument of a call if it is a name or a literal.
func (s sourceFile) firstArgument(function *ast.SelectorExpr) (text string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || call.Fun != function || len(call.Args) == 0 {
			return true
		}
		switch first := call.Args[0].(type) {
		case *ast.Ident:
			text = first.Name
		case *ast.BasicLit:
			text = first.Value
		}
		return false
	})
	return text
}
