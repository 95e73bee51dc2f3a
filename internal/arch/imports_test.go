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

// goPackage is what the go command knows of one package.
type goPackage struct {
	ImportPath                               string
	Imports, Deps, TestImports, XTestImports []string
}

func (p goPackage) pathInRepository() string { return strings.TrimPrefix(p.ImportPath, modulePrefix) }

func TestEveryPackageKeepsItsImportLaw(t *testing.T) {
	var all []goPackage
	for _, module := range []string{".", "conditional", "local", "local/dns"} {
		all = append(all, listPackages(t, module)...)
	}
	t.Run("every package has a law and keeps it", func(t *testing.T) { testLaws(t, all) })
	t.Run("every law has a package", func(t *testing.T) { testStaleLaws(t, all) })
	t.Run("what is for tests is not linked in", func(t *testing.T) { testTestOnly(t, all) })
}

func testLaws(t *testing.T, all []goPackage) {
	for _, p := range all {
		l, ok := lawFor(p.pathInRepository())
		if !ok {
			t.Errorf("%s: expected a law for this package, found none; write into import_laws_test.go what it may import, and why", p.pathInRepository())
			continue
		}
		for _, breach := range l.findBreaches(p) {
			t.Errorf("%s %s, against its law: %s", p.pathInRepository(), breach, l.reason)
		}
	}
}

func testStaleLaws(t *testing.T, all []goPackage) {
	for _, l := range importLaws() {
		built := slices.ContainsFunc(all, func(p goPackage) bool {
			first, ok := lawFor(p.pathInRepository())
			return ok && first.packages == l.packages
		})
		switch {
		case l.reason == "":
			t.Errorf("law for %s: expected a reason, found none", l.packages)
		case !built:
			t.Errorf("law for %s: expected a package, found none; remove the law", l.packages)
		}
	}
}

func testTestOnly(t *testing.T, all []goPackage) {
	for _, p := range all {
		if matchesAny(testOnlyPackages(), p.pathInRepository()) {
			continue
		}
		for _, dep := range p.Deps {
			if ours, ok := strings.CutPrefix(dep, modulePrefix); ok && matchesAny(testOnlyPackages(), ours) {
				t.Errorf("%s reaches %s, which is only for tests", p.pathInRepository(), ours)
			}
		}
		for _, dep := range slices.Concat(p.TestImports, p.XTestImports) {
			if ours, ok := strings.CutPrefix(dep, modulePrefix); ok && matchesPattern("local/...", ours) {
				t.Errorf("tests of %s import %s; they may run its program, but the module stays apart", p.pathInRepository(), ours)
			}
		}
	}
}

func TestDecisionsDoNotAskForTheTime(t *testing.T) {
	clocks := map[string][]string{
		"time":                                 {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"},
		"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now"},
	}
	for _, s := range parseSources(t) {
		if l, ok := lawFor(s.folder()); !ok || !l.getsTimeAsValue || s.isTest() {
			continue
		}
		for pkg, functions := range clocks {
			for _, use := range s.findUses(pkg, functions...) {
				t.Errorf("%s: a pure package calls %s; let the caller pass the time as a value", s.position(use), use.Sel.Name)
			}
		}
	}
}

// findBreaches returns how p breaks the law.
func (l importLaw) findBreaches(p goPackage) []string {
	var found []string
	for _, dep := range p.Deps {
		ours, isOurs := strings.CutPrefix(dep, modulePrefix)
		if isOurs && !matchesAny(l.mayReach, ours) || isForeign(dep) && matchesAny(l.mayNotReach, dep) {
			found = append(found, "reaches "+dep)
		}
	}
	for _, dep := range p.Imports {
		ours, isOurs := strings.CutPrefix(dep, modulePrefix)
		switch {
		case isOurs && l.mayImport != nil && !matchesAny(l.mayImport, ours),
			isForeign(dep) && l.mayImportForeign != nil && !matchesAny(l.mayImportForeign, dep),
			slices.Contains(l.bannedStandard, dep):
			found = append(found, "imports "+dep)
		}
	}
	return found
}

func lawFor(pkg string) (importLaw, bool) {
	all := importLaws()
	i := slices.IndexFunc(all, func(l importLaw) bool { return matchesPattern(l.packages, pkg) })
	if i < 0 {
		return importLaw{}, false
	}
	return all[i], true
}

// isForeign reports whether a package belongs to another module and not to the standard library.
func isForeign(pkg string) bool {
	host, _, _ := strings.Cut(pkg, "/")
	return strings.Contains(host, ".") && !strings.HasPrefix(pkg, modulePrefix)
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matchesPattern(pattern, pkg) })
}

// matchesPattern reports whether a package matches a/b, a/b/... (which includes a/b) or a/*.
func matchesPattern(pattern, pkg string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(pkg+"/", prefix)
	}
	ok, err := path.Match(pattern, pkg)
	return err == nil && ok
}

func listPackages(t *testing.T, module string) []goPackage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), listLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Imports,Deps,TestImports,XTestImports", "./...")
	cmd.Dir = filepath.Join(repositoryRoot, module)
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
