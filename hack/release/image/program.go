// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// authorities is the module with the certificates of public CAs, including constraints that a file cannot express.
// The image contains no other CA certificates.
const authorities = "golang.org/x/crypto/x509roots/fallback"

// compiledProgram is a compiled file with its build information.
type compiledProgram struct {
	path     string
	info     *debug.BuildInfo
	platform v1.Platform
	// committed is the time of the commit from which the program was built, which is the same for every build of
	// this commit.
	committed time.Time
}

// readProgram reads a program, and returns an error if the program does not satisfy the requirements of an image.
func readProgram(path string) (compiledProgram, error) {
	p := compiledProgram{path: path}
	var err error
	if p.info, err = buildinfo.ReadFile(path); err != nil {
		return p, fmt.Errorf("expected a program of Go at %s: %w", path, err)
	}
	p.platform = v1.Platform{OS: p.setting("GOOS"), Architecture: p.setting("GOARCH")}
	if at := p.setting("vcs.time"); at != "" {
		if p.committed, err = time.Parse(time.RFC3339, at); err != nil {
			return p, fmt.Errorf("%s: parse the commit time: %w", path, err)
		}
	}
	p.committed = time.Unix(max(0, p.committed.Unix()), 0).UTC()
	if err := p.verifyLinking(); err != nil {
		return p, fmt.Errorf("%s: %w; build it with CGO_ENABLED=0 and -trimpath", path, err)
	}
	return p, nil
}

func (p compiledProgram) setting(key string) string {
	i := slices.IndexFunc(p.info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
	if i < 0 {
		return ""
	}
	return p.info.Settings[i].Value
}

func (p compiledProgram) verifyLinking() error {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	machine, isKnown := machines[p.platform.Architecture]
	if p.platform.OS != "linux" || !isKnown {
		return fmt.Errorf("expected a program for linux on amd64 or arm64, found one for %s", p.platform)
	}
	file, err := elf.Open(p.path)
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	isDynamic := slices.ContainsFunc(file.Progs, func(segment *elf.Prog) bool { return segment.Type == elf.PT_INTERP })
	found := file.Machine
	if err := file.Close(); err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	switch {
	case found != machine:
		return fmt.Errorf("expected code for %s, found %s", machine, found)
	case isDynamic:
		return errors.New("expected a static program, found one that needs the libraries of a system")
	case p.setting("-trimpath") != "true":
		return errors.New("expected a program that contains no paths of the machine that built it, found a program with such paths")
	case !slices.ContainsFunc(p.info.Deps, func(m *debug.Module) bool { return m.Path == authorities }):
		return fmt.Errorf("expected the certificates of public authorities in the program (%s), found none", authorities)
	}
	return nil
}
