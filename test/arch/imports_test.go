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

type goPackage struct {
	ImportPath                               string
	Imports, Deps, TestImports, XTestImports []string
}

func (p goPackage) pathInRepository() string { return strings.TrimPrefix(p.ImportPath, modulePrefix) }

func TestEveryPackageKeepsItsImportLaw(t *testing.T) {
	var all []goPackage
	for _, module := range []string{".", "conditional", "conditional/bench", "local", "local/dns"} {
		all = append(all, listPackages(t, module)...)
	}
	t.Run("every package has a law and keeps it", func(t *testing.T) { testLaws(t, all) })
	t.Run("every law has a package", func(t *testing.T) { testStaleLaws(t, all) })
	t.Run("no product package links in a package for tests", func(t *testing.T) { testTestOnly(t, all) })
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

func TestDecisionsDoNotReadTheClock(t *testing.T) {
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

// Every file that imports a package must use the same name for it. An alias that equals the package's own name is an
// error.
func TestPackagesAreImportedUnderOneName(t *testing.T) {
	first := map[string]string{} // The name of a package, by its path.
	for _, s := range handwrittenSources(t) {
		for _, spec := range s.file.Imports {
			ours, isOurs := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), modulePrefix)
			if !isOurs || spec.Name != nil && spec.Name.Name == "_" {
				continue
			}
			name := path.Base(ours)
			if spec.Name != nil {
				if name == spec.Name.Name {
					t.Errorf("%s: expected %s without an alias, found its own name; remove it", s.position(spec), ours)
				}
				name = spec.Name.Name
			}
			if _, isKnown := first[ours]; !isKnown {
				first[ours] = name
			}
			if name != first[ours] {
				t.Errorf("%s: expected the name %s for %s, as in other files, found %s", s.position(spec), first[ours], ours, name)
			}
		}
	}
	if len(first) == 0 {
		t.Error("expected imports of packages of this repository, found none")
	}
}

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

// TestBreachesOfImportLawsAreFound checks the detection of breaches. Each row has one package and the breaches of its
// law.
func TestBreachesOfImportLawsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		at   string
		in   goPackage
		want []string
	}{
		"a decision package may reach api and actuator": {
			at: "internal/cluster/hibernation", in: goPackage{Deps: []string{"os", modulePrefix + "api/hive/v1", modulePrefix + "actuator"}},
		},
		"a decision package must not import os": {
			at: "internal/cluster/hibernation", in: goPackage{Imports: []string{"os", "time"}, Deps: []string{"os", "time"}},
			want: []string{"imports os"},
		},
		"a decision package must not reach a Kubernetes client": {
			at: "internal/cluster/hibernation", in: goPackage{Deps: []string{"k8s.io/client-go/rest", "k8s.io/client-gone"}},
			want: []string{"reaches k8s.io/client-go/rest"},
		},
		"the decision package for certificate requests may import net but not net/http": {
			at: "internal/cluster/hibernation/csr", in: goPackage{Imports: []string{"net", "net/http"}},
			want: []string{"imports net/http"},
		},
		"a controller package must not reach another feature or a cloud": {
			at: "internal/cluster/hibernation/controller", in: goPackage{Deps: []string{
				modulePrefix + "internal/cluster/hibernation/csr", modulePrefix + "internal/reconcile", modulePrefix + "internal/cf/process", modulePrefix + "internal/cloud/aws",
			}},
			want: []string{"reaches " + modulePrefix + "internal/cf/process", "reaches " + modulePrefix + "internal/cloud/aws"},
		},
		"a cloud package must not reach another cloud package": {
			at: "internal/cloud/aws", in: goPackage{Deps: []string{modulePrefix + "internal/cloud/gcp", modulePrefix + "actuator"}},
			want: []string{"reaches " + modulePrefix + "internal/cloud/gcp"},
		},
		"the package actuator must not reach another module": {
			at: "actuator", in: goPackage{Deps: []string{"context", "example.com/sdk"}},
			want: []string{"reaches example.com/sdk"},
		},
		"an API package may import only types of Kubernetes": {
			at: "api/hive/v1", in: goPackage{Imports: []string{"k8s.io/api/core/v1", "example.com/types"}},
			want: []string{"imports example.com/types"},
		},
		"the library conditional must not reach this repository's API": {
			at: "conditional/internal/detect", in: goPackage{Deps: []string{modulePrefix + "conditional", modulePrefix + "api/torpor/v1alpha1"}},
			want: []string{"reaches " + modulePrefix + "api/torpor/v1alpha1"},
		},
		"a command must import only the package that it starts": {
			at: "cmd/torpor", in: goPackage{
				Imports: []string{modulePrefix + "internal/manager", modulePrefix + "internal/reconcile"},
				Deps:    []string{modulePrefix + "internal/reconcile"},
			},
			want: []string{"imports " + modulePrefix + "internal/reconcile"},
		},
		"a kubectl plugin must not import a feature": {
			at: "cmd/kubectl-moco", in: goPackage{Imports: []string{modulePrefix + "internal/cli", modulePrefix + "internal/cluster/hibernation"}},
			want: []string{"imports " + modulePrefix + "internal/cluster/hibernation"},
		},
		"the test environment local must not reach internal packages of the product": {
			at: "local", in: goPackage{Deps: []string{modulePrefix + "local/pki", modulePrefix + "api/hive/v1", modulePrefix + "internal/reconcile"}},
			want: []string{"reaches " + modulePrefix + "internal/reconcile"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, ok := lawFor(c.at)
			if !ok {
				t.Fatalf("expected a law for %s, found none", c.at)
			}
			if got := l.findBreaches(c.in); !slices.Equal(got, c.want) {
				t.Errorf("expected %q, found %q", c.want, got)
			}
		})
	}
}

func TestUnknownPackagesHaveNoLaw(t *testing.T) {
	for _, pkg := range []string{"internal/somewhere", "internal/cluster/hibernation/store", "internal/cloud/aws/deeper", "internal/reconcile/more", "cmd/other", "pkg"} {
		if l, ok := lawFor(pkg); ok {
			t.Errorf("%s: expected no law, found that for %s", pkg, l.packages)
		}
	}
}
