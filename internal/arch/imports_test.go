// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	modulePrefix = "github.com/torpor-dev/torpor/"
	listLimit    = 5 * time.Minute
)

// goPackage is what the go command tells of one package.
type goPackage struct {
	ImportPath                               string
	Imports, Deps, TestImports, XTestImports []string
}

func (p goPackage) name() string { return strings.TrimPrefix(p.ImportPath, modulePrefix) }

func TestImports(t *testing.T) {
	var all []goPackage
	for _, module := range []string{".", "conditional", "local", "local/dns"} {
		all = append(all, list(t, module)...)
	}
	t.Run("every package has a law and keeps it", func(t *testing.T) { testLaws(t, all) })
	t.Run("every law has a package", func(t *testing.T) { testStaleLaws(t, all) })
	t.Run("what is for tests is not linked in", func(t *testing.T) { testTestOnly(t, all) })
}

func testLaws(t *testing.T, all []goPackage) {
	for _, p := range all {
		l, ok := lawFor(p.name())
		if !ok {
			t.Errorf("%s: expected a law for this package, found none; write into law_test.go what it may import, and why", p.name())
			continue
		}
		for _, breach := range l.breaches(p) {
			t.Errorf("%s %s, against its law: %s", p.name(), breach, l.why)
		}
	}
}

func testStaleLaws(t *testing.T, all []goPackage) {
	for _, l := range laws() {
		built := slices.ContainsFunc(all, func(p goPackage) bool {
			first, ok := lawFor(p.name())
			return ok && first.packages == l.packages
		})
		switch {
		case l.why == "":
			t.Errorf("law for %s: expected a reason, found none", l.packages)
		case !built:
			t.Errorf("law for %s: expected a package, found none; remove the law", l.packages)
		}
	}
}

func testTestOnly(t *testing.T, all []goPackage) {
	for _, p := range all {
		if matchesAny(testOnly(), p.name()) {
			continue
		}
		for _, dep := range p.Deps {
			if ours, ok := strings.CutPrefix(dep, modulePrefix); ok && matchesAny(testOnly(), ours) {
				t.Errorf("%s reaches %s, which is only for tests", p.name(), ours)
			}
		}
		for _, dep := range slices.Concat(p.TestImports, p.XTestImports) {
			if ours, ok := strings.CutPrefix(dep, modulePrefix); ok && matches("local/...", ours) {
				t.Errorf("tests of %s import %s; they may run its program, but the module stays apart", p.name(), ours)
			}
		}
	}
}

func TestDecisionsDoNotAskForTheTime(t *testing.T) {
	clocks := map[string][]string{
		"time":                                 {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"},
		"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now"},
	}
	for _, s := range sources(t) {
		if l, ok := lawFor(s.dir()); !ok || !l.timeless || s.isTest() {
			continue
		}
		for pkg, functions := range clocks {
			for _, use := range s.uses(pkg, functions...) {
				t.Errorf("%s: a pure package calls %s; let the caller pass the time as a value", s.at(use), use.Sel.Name)
			}
		}
	}
}

// breaches says how p breaks the law.
func (l law) breaches(p goPackage) []string {
	var found []string
	for _, dep := range p.Deps {
		ours, isOurs := strings.CutPrefix(dep, modulePrefix)
		if isOurs && !matchesAny(l.may, ours) || isForeign(dep) && matchesAny(l.never, dep) {
			found = append(found, "reaches "+dep)
		}
	}
	for _, dep := range p.Imports {
		ours, isOurs := strings.CutPrefix(dep, modulePrefix)
		switch {
		case isOurs && l.calls != nil && !matchesAny(l.calls, ours),
			isForeign(dep) && l.outside != nil && !matchesAny(l.outside, dep),
			slices.Contains(l.std, dep):
			found = append(found, "imports "+dep)
		}
	}
	return found
}

func lawFor(pkg string) (law, bool) {
	all := laws()
	i := slices.IndexFunc(all, func(l law) bool { return matches(l.packages, pkg) })
	if i < 0 {
		return law{}, false
	}
	return all[i], true
}

// isForeign tells other people's modules from the standard library and from this repository.
func isForeign(pkg string) bool {
	host, _, _ := strings.Cut(pkg, "/")
	return strings.Contains(host, ".") && !strings.HasPrefix(pkg, modulePrefix)
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, pkg) })
}

// matches understands a/b, a/b/... (which is a/b too) and a/*.
func matches(pattern, pkg string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(pkg+"/", prefix)
	}
	ok, err := path.Match(pattern, pkg)
	return err == nil && ok
}

func list(t *testing.T, module string) []goPackage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), listLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Imports,Deps,TestImports,XTestImports", "./...")
	cmd.Dir = filepath.Join(root, module)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the packages of %s: %v\n%s", module, err, stderr.String())
	}
	var all []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p goPackage
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}
