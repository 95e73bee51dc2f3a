// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// maxBinaryBytes is the size that the stripped binary of the manager may have.
const maxBinaryBytes = 65_000_000

// A call of reflect.Value.MethodByName with a name that is not a constant makes the linker keep every
// exported method. text/template and html/template contain such a call. The flags are those of the Makefile, so that
// only the main package is compiled. It is compiled with a flag of its own, because Go keeps what the linker prints for
// each compiled main package, and would print it again in a later build of the same one.
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
