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

// repositoryRoot is the path of the repository from this folder.
const repositoryRoot = "../.."

// sourceFile is one Go file of the repository, in whichever module.
type sourceFile struct {
	// path is relative to the repository, with slashes.
	path string
	text string
	set  *token.FileSet
	file *ast.File
}

func (s sourceFile) isTest() bool      { return strings.HasSuffix(s.path, "_test.go") }
func (s sourceFile) isGenerated() bool { return ast.IsGenerated(s.file) }
func (s sourceFile) isAPI() bool       { return strings.HasPrefix(s.path, "api/") }
func (s sourceFile) folder() string    { return path.Dir(s.path) }

func (s sourceFile) position(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.lineOf(n.Pos()))
}

func (s sourceFile) lineOf(p token.Pos) int { return s.set.Position(p).Line }

func (s sourceFile) importNames(pkg string) []string {
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

func (s sourceFile) findUses(pkg string, functions ...string) []*ast.SelectorExpr {
	names := s.importNames(pkg)
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

func parseSources(t *testing.T) []sourceFile {
	t.Helper()
	set := token.NewFileSet()
	var all []sourceFile
	for _, name := range listFiles(t) {
		if path.Ext(name) != ".go" {
			continue
		}
		text := readFile(t, name)
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sourceFile{path: name, text: text, set: set, file: file})
	}
	if len(all) == 0 {
		t.Fatalf("expected Go files under %s, found none", repositoryRoot)
	}
	return all
}

// handwrittenSources leaves out generated files, which follow their generator.
func handwrittenSources(t *testing.T) []sourceFile {
	t.Helper()
	return slices.DeleteFunc(parseSources(t), sourceFile.isGenerated)
}

// listFiles lists the files of the repository, relative to it and with slashes.
func listFiles(t *testing.T) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(repositoryRoot), ".", func(name string, d fs.DirEntry, err error) error {
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

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repositoryRoot, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func fileExists(name string) bool {
	_, err := os.Stat(filepath.Join(repositoryRoot, filepath.FromSlash(name)))
	return err == nil
}
