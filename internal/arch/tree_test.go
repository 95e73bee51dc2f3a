// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the repository as seen from this folder.
const root = "../.."

// source is one Go file of the repository, whichever module it belongs to.
type source struct {
	// path is relative to the repository, with slashes.
	path string
	text string
	set  *token.FileSet
	file *ast.File
}

func (s source) isTest() bool      { return strings.HasSuffix(s.path, "_test.go") }
func (s source) isGenerated() bool { return ast.IsGenerated(s.file) }
func (s source) isAPI() bool       { return strings.HasPrefix(s.path, "api/") }
func (s source) dir() string       { return path.Dir(s.path) }

// at shows where a node is, for messages.
func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.line(n.Pos()))
}

func (s source) line(p token.Pos) int { return s.set.Position(p).Line }

// imported returns the names under which the file knows a package.
func (s source) imported(pkg string) []string {
	var names []string
	for _, spec := range s.file.Imports {
		switch {
		case spec.Path.Value != strconv.Quote(pkg):
		case spec.Name != nil:
			names = append(names, spec.Name.Name)
		default:
			names = append(names, path.Base(pkg))
		}
	}
	return names
}

// uses reports every mention of one of the package's functions.
func (s source) uses(pkg string, functions ...string) []*ast.SelectorExpr {
	names := s.imported(pkg)
	var found []*ast.SelectorExpr
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(functions, sel.Sel.Name) {
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(names, x.Name) {
				found = append(found, sel)
			}
		}
		return true
	})
	return found
}

// sources parses every Go file of the three modules.
func sources(t *testing.T) []source {
	t.Helper()
	set := token.NewFileSet()
	var all []source
	for _, name := range tree(t) {
		if path.Ext(name) != ".go" {
			continue
		}
		text := read(t, name)
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, source{path: name, text: text, set: set, file: file})
	}
	if len(all) == 0 {
		t.Fatalf("expected Go files under %s, found none", root)
	}
	return all
}

// handwritten leaves out generated files, which obey their generator.
func handwritten(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(sources(t), source.isGenerated)
}

// tree lists the files of the repository, relative to it and with slashes.
func tree(t *testing.T) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			names = append(names, name)
		case slices.Contains([]string{".git", ".cache", "testdata"}, d.Name()):
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}
