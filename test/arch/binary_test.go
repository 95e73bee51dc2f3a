// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// maxBinaryBytes is the maximum size of the manager's stripped binary.
const maxBinaryBytes = 65_000_000

// A call of reflect.Value.MethodByName with a name that is not a constant makes the linker keep every exported method.
// text/template and html/template contain such a call. With the flags of the Makefile, only the main package has to be
// compiled. The flag -N gives this package a separate entry in Go's build cache. Go stores the linker's output in that
// entry, and would otherwise print the output again in other builds.
func TestTheManagerBinaryHasNoUnreachableMethods(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "torpor")
	build := exec.Command("go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-gcflags=./cmd/torpor=-N -dwarf=false", "-ldflags=-s -w -dumpdep", "-o", binary, "./cmd/torpor")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	dependencies, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("build cmd/torpor: %v\n%s", err, dependencies[max(0, len(dependencies)-2000):])
	}
	if !bytes.Contains(dependencies, []byte("main.main")) {
		t.Fatal("expected the linker to print the dependencies of main.main, found none; see -dumpdep of go tool link")
	}
	for line := range bytes.Lines(dependencies) {
		if bytes.Contains(line, []byte("<ReflectMethod>")) {
			t.Errorf("expected no lookup of methods by name, found %s", line)
		}
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxBinaryBytes {
		t.Errorf("expected a binary of at most %d bytes, found %d", maxBinaryBytes, info.Size())
	}
}
