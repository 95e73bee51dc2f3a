// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runCommand returns the lines that a command prints. The folder is relative to the root of the repository.
func runCommand(t *testing.T, folder, name string, args ...string) []string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Dir, command.Stderr = filepath.Join("../..", folder), os.Stderr
	// A make that runs this test passes on its own flags.
	command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKEFLAGS=") || strings.HasPrefix(v, "MFLAGS=") || strings.HasPrefix(v, "MAKELEVEL=")
	})
	printed, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s in %q: %v\n%s", name, strings.Join(args, " "), folder, err, printed)
	}
	return strings.Fields(string(printed))
}

// Go compiles a package once for each version of each of its dependencies. Modules that are built together therefore
// use the same versions. The module local is not among them: it builds another version of Kubernetes.
func TestModulesShareTheVersionsOfTheirDependencies(t *testing.T) {
	const format = "{{with .Module}}{{if .Version}}{{.Path}}@{{.Version}}{{end}}{{end}}"
	versions := map[string]string{}
	for _, dependency := range runCommand(t, ".", "go", "list", "-deps", "-test", "-f", format, "./...") {
		path, version, _ := strings.Cut(dependency, "@")
		versions[path] = version
	}
	shared := 0
	for _, module := range []string{"conditional", "conditional/bench"} {
		dependencies := runCommand(t, module, "go", "list", "-deps", "-test", "-f", format, "./...")
		slices.Sort(dependencies)
		for _, dependency := range slices.Compact(dependencies) {
			path, version, _ := strings.Cut(dependency, "@")
			expected, isShared := versions[path]
			if !isShared {
				continue
			}
			shared++
			if version != expected && !strings.HasPrefix(path, "github.com/torpor-dev/") {
				t.Errorf("%s: expected %s of the root module, found %s; run: cd %s && go get %s@%s",
					module, expected, dependency, module, path, expected)
			}
		}
	}
	if shared == 0 {
		t.Error("expected the modules to share dependencies, found none")
	}
}

// .ci/test runs as CI runs it. Only the test command is replaced, by one that lists its packages.
func TestEveryPackageWithTestsIsRunByATarget(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	const script = "#!/bin/sh\nexec go list $(for arg; do case $arg in ./*|github.com/*) echo \"$arg\";; esac; done)\n"
	if err := os.WriteFile(list, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOTEST", list)
	run := map[string]bool{}
	for _, mode := range []string{"fast", "full", "pods"} {
		found := runCommand(t, ".", ".ci/test", mode)
		if twice := findRepeated(found); len(twice) > 0 {
			t.Errorf(".ci/test %s: expected each package once, found twice: %q", mode, twice)
		}
		for _, pkg := range found {
			run[pkg] = true
		}
	}
	for _, module := range []string{".", "conditional", "conditional/bench", "local", "local/dns"} {
		const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"
		for _, pkg := range runCommand(t, module, "go", "list", "-f", format, "./...") {
			if !run[pkg] {
				t.Errorf("expected make test or make e2e-pods to run the tests of %s, found no target that does", pkg)
			}
		}
	}
}

func findRepeated(list []string) []string {
	slices.Sort(list)
	var repeated []string
	for i := range max(0, len(list)-1) {
		if list[i] == list[i+1] {
			repeated = append(repeated, list[i])
		}
	}
	return slices.Compact(repeated)
}

// TestPackagesWithGoroutinesAreRaced compares .ci/raced-packages with the code of the root module. The tests of the exceptions take minutes
// under the race detector; make test-full runs them with it.
func TestPackagesWithGoroutinesAreRaced(t *testing.T) {
	exceptions := []string{
		"internal/cf/api", "internal/cf/process/controller", "internal/cli/torpor", "internal/cloud/aws", "internal/cloud/azure",
		"internal/cloud/baremetal", "internal/cloud/gcp", "internal/cloud/libvirt", "internal/mysql/backup/controller",
		"internal/mysql/backup/job", "internal/mysql/clustering/controller",
	}
	starts := map[string]bool{}
	for _, s := range handwrittenSources(t) {
		if strings.HasPrefix(s.path, "internal/") && !s.isTest() && startsGoroutines(s) {
			starts[s.folder()] = true
		}
	}
	raced := map[string]bool{}
	for line := range strings.Lines(readFile(t, ".ci/raced-packages")) {
		if folder, isPackage := strings.CutPrefix(strings.TrimSpace(line), "./"); isPackage {
			raced[folder] = true
			if !fileExists(folder) {
				t.Errorf(".ci/raced-packages: expected a folder %s, found none", folder)
			}
		}
	}
	for folder := range starts {
		if !raced[folder] && !slices.Contains(exceptions, folder) {
			t.Errorf("%s starts goroutines: expected it in .ci/raced-packages, found it neither there nor among the exceptions", folder)
		}
	}
	for _, folder := range exceptions {
		if !starts[folder] || raced[folder] {
			t.Errorf("%s: expected an exception that starts goroutines and is not raced; remove it from the list", folder)
		}
	}
	if len(starts) == 0 || len(raced) == 0 {
		t.Error("expected packages that start goroutines and packages that are raced, found none")
	}
}

// startsGoroutines reports whether a file has a go statement, or calls the method Go of a group.
func startsGoroutines(s sourceFile) bool {
	starts := false
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			starts = true
		case *ast.CallExpr:
			method, isMethod := n.Fun.(*ast.SelectorExpr)
			starts = starts || isMethod && method.Sel.Name == "Go"
		}
		return true
	})
	return starts
}
