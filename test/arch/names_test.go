// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestPackageNamesAreNotGeneric(t *testing.T) {
	empty := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "lib"}
	for _, s := range handwrittenSources(t) {
		for _, name := range []string{s.file.Name.Name, path.Base(s.folder())} {
			if slices.Contains(empty, name) {
				t.Errorf("%s: a package called %q says nothing; name it after what it holds", s.path, name)
			}
		}
		if path.Base(s.path) == "types.go" {
			t.Errorf("%s: a file called types.go says nothing; name it after the type", s.path)
		}
	}
}

func TestPackagesHaveNoInitFunctions(t *testing.T) {
	for _, s := range handwrittenSources(t) {
		for _, f := range functionDecls(s) {
			if f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: expected no init function; call it from where things are wired", s.position(f))
			}
		}
	}
}

func TestTestsDoNotSleep(t *testing.T) {
	for _, s := range handwrittenSources(t) {
		if !s.isTest() {
			continue
		}
		for _, use := range s.findUses("time", "Sleep") {
			t.Errorf("%s: a test sleeps; wait for what it waits for, or use testing/synctest", s.position(use))
		}
	}
}

// The race detector makes a model test ten times slower, and cannot find a race in a package that starts no goroutine.
func TestPackagesWithoutRaceDetectorStartNoGoroutine(t *testing.T) {
	unraced := map[string]int{}
	for _, list := range regexp.MustCompile(`(?m)^models=\((.*)\)$`).FindAllStringSubmatch(readFile(t, ".ci/test"), -1) {
		for name := range strings.FieldsSeq(list[1]) {
			unraced[name] = 0
		}
	}
	needsDetector := func(where, why string) {
		t.Errorf("%s: %s, so the race detector has to see its tests: take it off the list models of .ci/test", where, why)
	}
	for _, s := range parseSources(t) {
		if _, isUnraced := unraced[s.folder()]; !isUnraced {
			continue
		}
		unraced[s.folder()]++
		for _, pkg := range []string{"sync", "sync/atomic", "golang.org/x/sync/errgroup", "github.com/torpor-dev/torpor/test/env"} {
			if len(s.importNames(pkg)) > 0 {
				needsDetector(s.path, "imports "+pkg)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if start, isStart := n.(*ast.GoStmt); isStart {
				needsDetector(s.position(start), "starts a goroutine")
			}
			if call, isCall := n.(*ast.SelectorExpr); isCall && call.Sel.Name == "Parallel" {
				needsDetector(s.position(call), "runs beside other tests")
			}
			return true
		})
	}
	for folder, files := range unraced {
		if files == 0 {
			t.Errorf(".ci/test runs %s without the race detector: expected sources there, found none", folder)
		}
	}
	if len(unraced) == 0 {
		t.Error("expected .ci/test to run a model without the race detector, found none")
	}
}

// Names that other programs use must be constants of the packages in api/, because a second literal could diverge.
func TestOutsideNamesAreDefinedOnce(t *testing.T) {
	domains := []string{"hive.openshift.io/", "torpor.dev/", "moco.cybozu.com/", "korifi.cloudfoundry.org/"}
	for _, s := range handwrittenSources(t) {
		if s.isTest() || s.isAPI() {
			continue
		}
		for _, literal := range stringLiterals(s.file) {
			for _, domain := range domains {
				if strings.Contains(literal.Value, domain) {
					t.Errorf("%s: expected a constant of api/, found %s", s.position(literal), literal.Value)
				}
			}
		}
	}
}

// stringLiterals returns the strings of a file that are not import paths.
func stringLiterals(file *ast.File) []*ast.BasicLit {
	var found []*ast.BasicLit
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

func functionDecls(s sourceFile) []*ast.FuncDecl {
	var found []*ast.FuncDecl
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			found = append(found, f)
		}
	}
	return found
}

// The limits for wordCounts. A change may only make them stricter: longer names, and more functions with a comment
// inside.
const (
	maxOneWordFunctions = 0.30
	maxOneWordExported  = 0.28
	maxOneWordTypes     = 0.30
	minCommentInside    = 0.12
	minMedianName       = 11
)

// wordCounts measures how many names have one word, how long the names of functions are, and how many functions have a
// comment inside. Tests and generated files are left out. No limit is zero, because some good names have one word, such
// as String and Close.
type wordCounts struct {
	functions, exported, types []string
	commentsInside             int
}

func TestNamesAreLongEnoughForTheirCalls(t *testing.T) {
	var counts wordCounts
	for _, s := range handwrittenSources(t) {
		if !s.isTest() {
			counts.add(s)
		}
	}
	for _, limit := range []struct {
		what   string
		found  float64
		wanted func(float64) bool
		bound  string
	}{
		{"functions with a name of one word", shareOfOneWord(counts.functions), atMost(maxOneWordFunctions), fmt.Sprintf("at most %.3f", maxOneWordFunctions)},
		{"exported functions with a name of one word", shareOfOneWord(counts.exported), atMost(maxOneWordExported), fmt.Sprintf("at most %.3f", maxOneWordExported)},
		{"types with a name of one word", shareOfOneWord(counts.types), atMost(maxOneWordTypes), fmt.Sprintf("at most %.3f", maxOneWordTypes)},
		{"functions with a comment inside", counts.shareOfCommented(), atLeast(minCommentInside), fmt.Sprintf("at least %.3f", minCommentInside)},
		{"length of a function's name in the middle", medianLength(counts.functions), atLeast(minMedianName), fmt.Sprintf("at least %d", minMedianName)},
	} {
		t.Logf("%s: %.3f", limit.what, limit.found)
		if !limit.wanted(limit.found) {
			t.Errorf("%s: expected %s, found %.3f; let a name say what it is where it is called, as in docs/glossary.md", limit.what, limit.bound, limit.found)
		}
	}
}

func atMost(limit float64) func(float64) bool {
	return func(found float64) bool { return found <= limit }
}

func atLeast(limit float64) func(float64) bool {
	return func(found float64) bool { return found >= limit }
}

func (c *wordCounts) add(s sourceFile) {
	for _, decl := range s.file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			name := decl.Name.Name
			if name == "main" || name == "init" {
				continue
			}
			c.functions = append(c.functions, name)
			if decl.Name.IsExported() && !isPrescribed(decl) {
				c.exported = append(c.exported, name)
			}
			if s.hasCommentInside(decl) {
				c.commentsInside++
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					c.types = append(c.types, spec.Name.Name)
				}
			}
		}
	}
}

// isPrescribed reports whether a method has the name that an interface prescribes, as the comment of the method must
// state. Such names may be short: every actuator has methods Start and Stop.
func isPrescribed(f *ast.FuncDecl) bool {
	return f.Recv != nil && strings.HasPrefix(f.Doc.Text(), f.Name.Name+" implements ")
}

// hasCommentInside reports whether a comment begins on a line between the first and the last of a function.
func (s sourceFile) hasCommentInside(f *ast.FuncDecl) bool {
	return slices.ContainsFunc(s.file.Comments, func(group *ast.CommentGroup) bool {
		line := s.lineOf(group.Pos())
		return group.Pos() < f.End() && line > s.lineOf(f.Pos()) && line < s.lineOf(f.End())
	})
}

func (c *wordCounts) shareOfCommented() float64 {
	return float64(c.commentsInside) / math.Max(1, float64(len(c.functions)))
}

func shareOfOneWord(names []string) float64 {
	short := 0
	for _, name := range names {
		if countWords(name) == 1 {
			short++
		}
	}
	return float64(short) / math.Max(1, float64(len(names)))
}

// countWords counts the words of a name. A word begins with a capital letter that follows or precedes a small letter,
// so API is one word.
func countWords(name string) int {
	letters := []rune(name)
	count := 0
	for i, letter := range letters {
		afterCapital := i > 0 && unicode.IsUpper(letters[i-1])
		beforeSmall := i+1 < len(letters) && unicode.IsLower(letters[i+1])
		if i == 0 || unicode.IsUpper(letter) && (!afterCapital || beforeSmall) {
			count++
		}
	}
	return count
}

func medianLength(names []string) float64 {
	lengths := make([]int, len(names))
	for i, name := range names {
		lengths[i] = len(name)
	}
	slices.Sort(lengths)
	middle := len(lengths) / 2
	switch {
	case len(lengths) == 0:
		return 0
	case len(lengths)%2 == 0:
		return float64(lengths[middle-1]+lengths[middle]) / 2
	default:
		return float64(lengths[middle])
	}
}

// maxFixtureNames is the maximum number of types with a vague name. A change may only lower it.
const maxFixtureNames = 8

func TestTypeNamesAreNotVague(t *testing.T) {
	vague := []string{"world", "stage", "rig", "bed", "sleeper", "scene", "player", "thing", "stuff", "data"}
	var found []string
	for _, s := range handwrittenSources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && slices.Contains(vague, spec.Name.Name) {
				found = append(found, s.position(spec)+" "+spec.Name.Name)
			}
			return true
		})
	}
	if len(found) > maxFixtureNames {
		t.Errorf("expected at most %d types with a vague name, found %d: %q; name each after what it holds", maxFixtureNames, len(found), found)
	}
}

func TestWordsOfNamesAreCounted(t *testing.T) {
	for name, want := range map[string]int{
		"wait": 1, "String": 1, "API": 1, "apiServer": 2, "ServeHTTP": 2, "HTTPServer": 2, "BuildStatefulSet": 3, "Kill9": 1, "isReadOnly": 3, "newS3": 2, "PID": 1,
	} {
		if found := countWords(name); found != want {
			t.Errorf("%s: expected %d words, found %d", name, want, found)
		}
	}
}

func TestCommentsInsideFunctionsAreCounted(t *testing.T) {
	set := token.NewFileSet()
	text := `package p

// Type is documented, which does not count.
type Type struct{}

// explains has a comment inside.
func explains() {
	// Because of the race.
	run()
}

// run has none, and what follows it does not count.
func (Type) run() {
	call() // At the end of a line it counts.
}

func call() { _ = 1 } // After the function.

func main() {}
`
	file, err := parser.ParseFile(set, "p.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var counts wordCounts
	counts.add(sourceFile{path: "p.go", text: text, set: set, file: file})
	if want := []string{"explains", "run", "call"}; !slices.Equal(counts.functions, want) || counts.commentsInside != 2 {
		t.Errorf("expected %q, two of them with a comment inside, found %q and %d", want, counts.functions, counts.commentsInside)
	}
	if median, share := medianLength(counts.functions), shareOfOneWord(counts.types); median != 4 || share != 1 {
		t.Errorf("expected a median of 4 and one type of one word, found %v and %v", median, share)
	}
}

const maxFunctionLines = 60

// TestPredicatesOfRulesHaveNames expects the When of every named rule to be a named predicate with a gloss, not an inline function.
func TestPredicatesOfRulesHaveNames(t *testing.T) {
	rules := 0
	for _, s := range handwrittenSources(t) {
		if s.isTest() || !strings.HasPrefix(s.path, "internal/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			rule, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			fields := map[string]ast.Expr{}
			for _, e := range rule.Elts {
				if field, ok := e.(*ast.KeyValueExpr); ok {
					if key, ok := field.Key.(*ast.Ident); ok {
						fields[key.Name] = field.Value
					}
				}
			}
			name, isNamed := fields["Name"].(*ast.BasicLit)
			if fields["When"] == nil || !isNamed {
				return true
			}
			rules++
			if _, isInline := fields["When"].(*ast.FuncLit); isInline {
				t.Errorf("%s: expected the rule %s to have a predicate with a name, found an inline function", s.position(rule), name.Value)
			}
			return true
		})
	}
	if rules == 0 {
		t.Error("expected rules, found none")
	}
}

// Only the length of functions is limited, not the length of files or the number of files of a package.
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

// The maximum numbers of exceptions from the linters, in the code and in the configuration of the linters. A change may
// only lower them.
const (
	maxNolint           = 1
	maxLinterExclusions = 23
)

func TestExceptionsFromLintersAreFewAndExplained(t *testing.T) {
	explained := regexp.MustCompile(`^//nolint:[a-z0-9,]+ // \S.*\.$`)
	found := 0
	for _, s := range handwrittenSources(t) {
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				if !strings.HasPrefix(strings.TrimLeft(c.Text, "/ \t"), "nolint") {
					continue
				}
				found++
				if !explained.MatchString(c.Text) {
					t.Errorf("%s: expected \"//nolint:linter // Reason.\", found %q", s.position(c), c.Text)
				}
			}
		}
	}
	if found > maxNolint {
		t.Errorf("expected at most %d nolint marks, found %d; mend what the linter found", maxNolint, found)
	}
}

func TestExclusionsOfLintersAreFewAndExplained(t *testing.T) {
	files := listFiles(t)
	rules := strings.Split(readFile(t, ".golangci.yml"), "\n      - path: ")[1:]
	for _, rule := range rules {
		pattern, _, _ := strings.Cut(rule, "\n")
		if !strings.Contains(rule, " # ") {
			t.Errorf(".golangci.yml: expected a reason for the exclusion of %s, found none", pattern)
		}
		if !slices.ContainsFunc(files, regexp.MustCompile(pattern).MatchString) {
			t.Errorf(".golangci.yml: expected a file for the exclusion of %s, found none; remove it", pattern)
		}
	}
	if len(rules) == 0 || len(rules) > maxLinterExclusions {
		t.Errorf(".golangci.yml: expected 1 to %d exclusions, found %d; mend what the linter found", maxLinterExclusions, len(rules))
	}
}
