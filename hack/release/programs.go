// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/torpor-dev/torpor/hack/release/krew"
)

// programCompiler compiles programs of this repository reproducibly into a folder.
type programCompiler struct{ root, folder string }

// compile compiles a program of cmd for a platform, and returns its path.
func (c programCompiler) compile(ctx context.Context, name string, m krew.Machine) (string, error) {
	path, err := filepath.Abs(filepath.Join(c.folder, strings.Join([]string{name, m.OS, m.Architecture}, "-")))
	if err != nil {
		return "", fmt.Errorf("find the folder of programs: %w", err)
	}
	args := []string{"build", "-trimpath", "-buildvcs=true", "-gcflags=all=-dwarf=false", "-ldflags=-s -w", "-o", path, "./cmd/" + name}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = c.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+m.OS, "GOARCH="+m.Architecture, "GOFLAGS=")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("compile %s for %s on %s: %w: %s", name, m.OS, m.Architecture, err, strings.TrimSpace(problems.String()))
	}
	return path, nil
}

// versionOf returns the version in the build information of a program: the tag of the commit, or a pseudo-version.
func versionOf(path string) (string, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("expected a program of Go at %s: %w", path, err)
	}
	if !strings.HasPrefix(info.Main.Version, "v") {
		return "", fmt.Errorf("%s: expected a version such as v1.0.0, found %q; build it in a clone with its tags", path, info.Main.Version)
	}
	return info.Main.Version, nil
}
