// SPDX-License-Identifier: Apache-2.0

// Package examples contains a project in kubebuilder's layout, as a separate module. Its test makes the project
// conditional as described in the manual, with the library from a module proxy.
package examples

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

const (
	modulePath = "github.com/torpor-dev/torpor/conditional"
	guide      = "../docs/from-stock.md"
)

// TestAStockProjectTurnsConditional follows the guide. The project's own test starts its manager without the CRD.
func TestAStockProjectTurnsConditional(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set: it names the folder of etcd and kube-apiserver")
	}
	files := moduleFiles(t)
	proxy, version := publish(t, files)
	project := t.TempDir()
	testenv.Must(t, os.CopyFS(project, os.DirFS("stock")))
	run := func(command string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), command, args...)
		cmd.Dir = project
		cmd.Env = append(append(os.Environ(), buildEnv()...),
			// The module cache contains only the modules that were needed so far.
			"GOPROXY=file://"+proxy+",file://"+filepath.Join(goEnv(t, "GOMODCACHE"), "cache", "download")+","+goEnv(t, "GOPROXY"),
			"GONOSUMDB=*", "GOSUMDB=off", "GOPRIVATE=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("go", "test", "-count=1", "./internal/controller"); err == nil || !strings.Contains(out, "timed out waiting for cache") {
		t.Fatalf("the stock project does not fail without its CRD, so this shows nothing: %v\n%s", err, out)
	}
	page, err := os.ReadFile(guide)
	testenv.Must(t, err)
	if !bytes.Contains(page, []byte("\ngo get "+modulePath+"\n")) {
		t.Errorf("expected %s to get %s", guide, modulePath)
	}
	diffs := regexp.MustCompile("(?s)```diff\n(.*?)```").FindAllSubmatch(page, -1)
	if len(diffs) == 0 {
		t.Fatalf("expected diffs in %s, found none", guide)
	}
	for i, diff := range diffs {
		name := filepath.Join(t.TempDir(), "change.diff")
		testenv.Must(t, os.WriteFile(name, diff[1], 0o600))
		if out, err := run("git", "apply", "--unidiff-zero", name); err != nil {
			t.Fatalf("change %d of %s: %v\n%s", i+1, guide, err, out)
		}
	}
	for _, step := range [][]string{{"get", modulePath + "@" + version}, {"vet", "./..."}, {"build", "./..."}, {"test", "-count=1", "./..."}} {
		if out, err := run("go", step...); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(step, " "), err, out)
		}
	}
}

// TestTheModuleStandsAlone vets the module in a separate folder, and runs the tests that read documentation pages
// there.
func TestTheModuleStandsAlone(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set: this builds the module again, as the tests with servers do")
	}
	alone := t.TempDir()
	for name, content := range moduleFiles(t) {
		to := filepath.Join(alone, name)
		testenv.Must(t, os.MkdirAll(filepath.Dir(to), 0o755))
		testenv.Must(t, os.WriteFile(to, content, 0o600))
	}
	for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "-run", "Page|Diagram|Differences", "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = alone, append(os.Environ(), buildEnv()...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// buildEnv returns the variables of builds outside the tree. They have the flags of this test, so that the build cache
// contains the packages that are already compiled.
func buildEnv() []string {
	return []string{"GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=" + os.Getenv("GOFLAGS") + " -mod=mod"}
}

// moduleFiles returns the files that a module proxy would serve for this module: all files except those of nested
// modules.
func moduleFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	testenv.Must(t, filepath.WalkDir("..", func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			name, err := filepath.Rel("..", at)
			if err != nil {
				return err
			}
			files[filepath.ToSlash(name)], err = os.ReadFile(at)
			return err
		case at == "..":
			return nil
		}
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return filepath.SkipDir
		}
		return nil
	}))
	return files
}

// publish creates a module proxy for files. The version depends on the content, because the module cache never updates
// the content of a version.
func publish(t *testing.T, files map[string][]byte) (proxy, version string) {
	t.Helper()
	sum := sha256.New()
	for _, name := range sortedNames(files) {
		_, err := fmt.Fprintf(sum, "%s %d\n%s\n", name, len(files[name]), files[name])
		testenv.Must(t, err)
	}
	version = fmt.Sprintf("v0.0.0-20260101000000-%x", sum.Sum(nil)[:6])
	proxy = t.TempDir()
	folder := filepath.Join(proxy, filepath.FromSlash(modulePath), "@v")
	testenv.Must(t, os.MkdirAll(folder, 0o755))
	var packed bytes.Buffer
	into := zip.NewWriter(&packed)
	for _, name := range sortedNames(files) {
		w, err := into.Create(modulePath + "@" + version + "/" + name)
		testenv.Must(t, err)
		_, err = w.Write(files[name])
		testenv.Must(t, err)
	}
	testenv.Must(t, into.Close())
	for suffix, content := range map[string][]byte{
		".info": fmt.Appendf(nil, `{"Version": %q, "Time": "2026-01-01T00:00:00Z"}`, version), ".mod": files["go.mod"], ".zip": packed.Bytes(),
	} {
		testenv.Must(t, os.WriteFile(filepath.Join(folder, version+suffix), content, 0o600))
	}
	t.Cleanup(func() { forget(t, version) })
	return proxy, version
}

// forget removes the version from the module cache, whose folders are read-only.
func forget(t *testing.T, version string) {
	t.Helper()
	cached := filepath.Join(goEnv(t, "GOMODCACHE"), filepath.FromSlash(modulePath)+"@"+version)
	err := filepath.WalkDir(cached, func(at string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(at, 0o755)
		}
		return err
	})
	if err == nil {
		err = os.RemoveAll(cached)
	}
	if err != nil {
		t.Errorf("the module cache keeps %s: %v", version, err)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	testenv.Must(t, err)
	return strings.TrimSpace(string(out))
}

func sortedNames(files map[string][]byte) []string {
	return slices.Sorted(maps.Keys(files))
}
