// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"encoding/json"
	"go/ast"
	"maps"
	"os"
	"os/exec"
	"path"
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
	// If make runs this test, the environment contains the flags of that make.
	command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKEFLAGS=") || strings.HasPrefix(v, "MFLAGS=") || strings.HasPrefix(v, "MAKELEVEL=")
	})
	printed, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s in %q: %v\n%s", name, strings.Join(args, " "), folder, err, printed)
	}
	return strings.Fields(string(printed))
}

// requirements are the versions that a file requires, by module. A replacement by a folder has no version.
type requirements map[string]string

// readRequirements reads a file in the format of go.mod, which lists all modules whose packages Go builds.
func readRequirements(t *testing.T, name string) requirements {
	t.Helper()
	var file struct {
		Require []struct{ Path, Version string }
		Replace []struct {
			Old struct{ Path string }
			New struct{ Path, Version string }
		}
	}
	printed, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(repositoryRoot, filepath.FromSlash(name))).Output()
	if err != nil {
		t.Fatalf("go mod edit -json %s: %v", name, err)
	}
	if err := json.Unmarshal(printed, &file); err != nil {
		t.Fatalf("decode %s: %v", name, err)
	}
	required := requirements{}
	for _, r := range file.Require {
		required[r.Path] = r.Version
	}
	for _, r := range file.Replace {
		if _, isRequired := required[r.Old.Path]; isRequired {
			required[r.Old.Path] = r.New.Version
		}
		if r.New.Version == "" {
			delete(required, r.Old.Path)
		}
	}
	return required
}

// versionException allows a file to require other versions of some modules than the other files do.
type versionException struct {
	file string
	// modules are paths of modules. A path that ends in "..." stands for all paths with this prefix.
	modules []string
	reason  string
}

func (e versionException) covers(file, module string) bool {
	return e.file == file && slices.ContainsFunc(e.modules, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "...")
		return pattern == module || isPrefix && strings.HasPrefix(module, prefix)
	})
}

var versionExceptions = []versionException{
	{"go.tools.mod", []string{"..."}, "golangci-lint requires newer modules; no other program is built from this file"},
	{"go.release.mod", []string{"..."}, "krew requires Kubernetes 0.21; no other program is built from this file"},
	{"test/outside/observers/go.mod", []string{"..."}, "Prometheus and Flux are tested with the modules that they require"},
	{"go.helm.mod", []string{"go.yaml.in/yaml/v3"}, "Helm requires a newer version than Kubernetes does"},
	{"go.s3.mod", []string{"github.com/Azure/...", "github.com/AzureAD/..."}, "versitygw requires newer versions than the manager does"},
	{"local/dns/go.mod", []string{
		"github.com/go-logr/logr", "github.com/prometheus/...", "go.yaml.in/yaml/v3", "golang.org/x/...", "google.golang.org/...",
	}, "CoreDNS requires newer versions than Kubernetes does"},
}

// Go compiles a package again for each combination of versions of its dependencies. Therefore all files must require
// the same version of a module.
func TestModulesShareTheVersionsOfTheirDependencies(t *testing.T) {
	files := slices.DeleteFunc(listFiles(t), func(name string) bool {
		isModule, err := path.Match("go*.mod", path.Base(name))
		return err != nil || !isModule
	})
	required := map[string]requirements{}
	for _, file := range files {
		required[file] = readRequirements(t, file)
	}
	// places maps a module and a version to the files that require them. It contains no file with an exception for the
	// module.
	places := map[string]map[string][]string{}
	for _, file := range files {
		for module, version := range required[file] {
			if slices.ContainsFunc(versionExceptions, func(e versionException) bool { return e.covers(file, module) }) {
				continue
			}
			if places[module] == nil {
				places[module] = map[string][]string{}
			}
			places[module][version] = append(places[module][version], file)
		}
	}
	shared := 0
	for _, module := range slices.Sorted(maps.Keys(places)) {
		versions := places[module]
		if len(versions) > 1 {
			t.Errorf("%s: expected one version, found %v; run go get in the modules with an older one", module, versions)
		}
		for _, of := range versions {
			shared += len(of) - 1
		}
	}
	if shared == 0 {
		t.Error("expected the modules to share dependencies, found none")
	}
	for _, e := range versionExceptions {
		needed := false
		for module, version := range required[e.file] {
			needed = needed || e.covers(e.file, module) && len(places[module]) > 0 && places[module][version] == nil
		}
		if !needed {
			t.Errorf("%s: expected another version of %q than elsewhere, found none; remove the exception", e.file, e.modules)
		}
	}
}

// TestEveryPackageWithTestsIsRunByATarget runs .ci/test as CI does, but with a command that lists packages in place of
// the test command.
func TestEveryPackageWithTestsIsRunByATarget(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	const script = "#!/bin/sh\nexec go list $(for arg; do case $arg in ./*|github.com/*) echo \"$arg\";; esac; done)\n"
	if err := os.WriteFile(list, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOTEST", list)
	run := map[string]bool{}
	for _, mode := range []string{"fast", "full", "pods", "laws"} {
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
				t.Errorf("expected make test, make verify or make e2e-pods to run the tests of %s, found no target that does", pkg)
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

// TestPackagesWithGoroutinesAreRaced compares .ci/raced-packages with the code of the root module. The tests of the
// exceptions take minutes under the race detector, so only make test-full runs them with the race detector.
func TestPackagesWithGoroutinesAreRaced(t *testing.T) {
	exceptions := []string{
		"internal/cf/api", "internal/cf/process/controller", "internal/cli/torpor", "internal/cloud/aws", "internal/cloud/azure",
		"internal/cloud/baremetal", "internal/cloud/gcp", "internal/cloud/libvirt", "internal/mysql/backup/controller",
		"internal/mysql/backup/runner", "internal/mysql/clustering/controller",
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
