// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

func TestNamesSayWhatIsInside(t *testing.T) {
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

func TestNothingHappensBeforeMain(t *testing.T) {
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

// Names that other programs see are constants of the API: a second spelling is how they come apart.
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

// stringLiterals are the strings of a file that are not import paths.
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
