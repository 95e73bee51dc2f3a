// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/hack/release/krew"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const registryName = "registry.example/torpor"

// dryRun returns the options of a dry run that uses a small program in place of every program.
func dryRun(t *testing.T) Options {
	t.Helper()
	programs := t.TempDir()
	amd64, arm64 := filepath.Join(programs, "amd64"), filepath.Join(programs, "arm64")
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", amd64, "../image/testdata/program"}
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	// The programs for other processors are copies with a changed machine field, because compiling takes long and
	// the tests run none of them.
	const machineOffset = 18
	code := bytes.ReplaceAll(readFile(t, amd64), []byte("build\tGOARCH=amd64\n"), []byte("build\tGOARCH=arm64\n"))
	binary.LittleEndian.PutUint16(code[machineOffset:], uint16(elf.EM_AARCH64))
	writeFile(t, arm64, code)
	return Options{
		Root: os.DirFS("../../.."), Folder: t.TempDir(), Version: "v0.1.0", IsDryRun: true,
		Image: registryName, Downloads: "https://example.com/releases/download",
		Compile: func(_ context.Context, _ string, m krew.Machine) (string, error) {
			return filepath.Join(programs, m.Architecture), nil
		},
	}
}

func mustBuild(t *testing.T, o Options) Release {
	t.Helper()
	r, err := o.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBuildMakesEveryArtifact(t *testing.T) {
	t.Parallel()
	o := dryRun(t)
	r := mustBuild(t, o)
	var names []string
	for _, a := range r.Artifacts {
		names = append(names, a.Name)
	}
	if diff := cmp.Diff(ListExpected("v0.1.0", krew.ListMachines(), true), names); diff != "" || len(names) != 39 {
		t.Errorf("expected 39 artifacts, found %d (-expected +found):\n%s", len(names), diff)
	}
	t.Run("a second build has the same bytes, except for its key", func(t *testing.T) {
		o.Folder = t.TempDir()
		again := mustBuild(t, o).Artifacts
		isKey := func(a Artifact) bool { return a.Name == signatureFile || a.Name == publicKeyFile }
		first := slices.DeleteFunc(slices.Clone(r.Artifacts), isKey)
		if diff := cmp.Diff(first, slices.DeleteFunc(again, isKey)); diff != "" {
			t.Errorf("artifacts (-first +second):\n%s", diff)
		}
	})
	t.Run("manifests name the image by digest", func(t *testing.T) {
		digest, err := r.Image.Index.Digest()
		if want := registryName + ":v0.1.0@" + digest.String(); err != nil || r.ImageName != want {
			t.Fatalf("expected the image %s, found %s and the error %v", want, r.ImageName, err)
		}
		if !strings.Contains(string(readFile(t, filepath.Join(r.Folder, "install.yaml"))), "image: "+r.ImageName+"\n") {
			t.Errorf("install.yaml: expected the image %s, found none", r.ImageName)
		}
	})
	t.Run("manifests of krew lead to the artifacts", func(t *testing.T) {
		for _, plugin := range []string{"torpor", "moco"} {
			m, err := krew.Parse(plugin+".yaml", readFile(t, filepath.Join(r.Folder, plugin+".yaml")))
			if err != nil || len(m.Spec.Platforms) != 5 {
				t.Fatalf("%s: expected five platforms, found %+v and the error %v", plugin, m, err)
			}
			for _, p := range m.Spec.Platforms {
				name, isBelow := strings.CutPrefix(p.URI, "https://example.com/releases/download/v0.1.0/")
				i := slices.IndexFunc(r.Artifacts, func(a Artifact) bool { return a.Name == name })
				if !isBelow || i < 0 || r.Artifacts[i].Digest != "sha256:"+p.SHA256 {
					t.Errorf("%s: expected the address and the sum of an artifact, found %s and %s", plugin, p.URI, p.SHA256)
				}
			}
		}
	})
	t.Run("install.yaml is the output of torpor install", func(t *testing.T) {
		torpor := testenv.TorporPath(t)
		out, err := exec.CommandContext(t.Context(), torpor, "install", "--image", r.ImageName).Output()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(out), string(readFile(t, filepath.Join(r.Folder, "install.yaml")))); diff != "" {
			t.Errorf("install.yaml (-torpor install +found):\n%s", diff)
		}
	})
	t.Run("a build for one machine has only its programs", func(t *testing.T) {
		o.Folder, o.Machines = t.TempDir(), []krew.Machine{{OS: "linux", Architecture: "amd64"}}
		var programs []string
		for _, a := range mustBuild(t, o).Artifacts {
			if strings.HasSuffix(a.Name, "64.tar.gz") {
				programs = append(programs, a.Name)
			}
		}
		want := []string{"kubectl-moco_linux_amd64.tar.gz", "kubectl-torpor_linux_amd64.tar.gz", "torpor_linux_amd64.tar.gz"}
		if diff := cmp.Diff(want, programs); diff != "" {
			t.Errorf("programs (-expected +found):\n%s", diff)
		}
	})
	t.Run("the check reports each problem", func(t *testing.T) { testProblems(t, r) })
	t.Run("openssl verifies the signature", func(t *testing.T) {
		openssl, err := exec.LookPath("openssl")
		if err != nil {
			t.Skip("expected openssl on PATH, found none: the test of a wrong signature runs without it")
		}
		raw := filepath.Join(t.TempDir(), "signature")
		for _, args := range [][]string{
			{"base64", "-d", "-A", "-in", signatureFile, "-out", raw},
			{"dgst", "-sha256", "-verify", publicKeyFile, "-signature", raw, checksums},
		} {
			line := exec.CommandContext(t.Context(), openssl, args...)
			line.Dir = r.Folder
			if out, err := line.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		}
	})
}

func TestBuildRefusesAnotherVersion(t *testing.T) {
	t.Parallel()
	o := dryRun(t)
	changelog := func(heading string) fstest.MapFS {
		return fstest.MapFS{
			"CHANGELOG.md": {Data: []byte("# Changelog\n\n## " + heading + "\n\n- An entry.\n")},
			"LICENSE":      {Data: []byte("license")},
		}
	}
	dated, unlicensed := changelog("0.1.0 - 2026-12-01"), changelog("0.1.0 - 2026-12-01")
	delete(unlicensed, "LICENSE")
	for name, row := range map[string]struct {
		root    fs.FS
		version string
		want    string
	}{
		"a program without the requested version is refused": {dated, "v0.1.0", "expected torpor to have the version v0.1.0"},
		"a changelog section without a date is refused": {
			changelog("0.1.0 - unreleased"), "v0.1.0", "expected the date of the release",
		},
		"a version without a section in the changelog is refused": {dated, "v0.2.0", "expected a section ## 0.2.0 - DATE"},
		"a version without the prefix v is refused":               {dated, "0.1.0", "expected a version such as v1.0.0"},
		"a version that is not semantic is refused": {
			changelog("latest - 2026-12-01"), "vlatest", "expected a version such as v1.0.0",
		},
		"a version with a path is refused": {
			changelog("../0.1.0 - 2026-12-01"), "v../0.1.0", "expected a version such as v1.0.0",
		},
		"an empty version is refused":                 {dated, "", "expected a version such as v1.0.0"},
		"a repository without a license is refused":   {unlicensed, "v0.1.0", "read the license"},
		"a repository without a changelog is refused": {fstest.MapFS{}, "v0.1.0", "read the changelog"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := o
			o.Root, o.Version, o.IsDryRun, o.Folder = row.root, row.version, false, t.TempDir()
			if _, err := o.Build(t.Context()); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("expected an error with %q, found %v", row.want, err)
			}
		})
	}
}

// testProblems damages copies of a release, and expects Check to report each problem.
func testProblems(t *testing.T, built Release) {
	for name, row := range map[string]struct {
		damage func(t *testing.T, folder string)
		want   string
	}{
		"a missing archive of a program is refused": {
			remove("torpor_darwin_arm64.tar.gz"), "expected the artifact torpor_darwin_arm64.tar.gz, found none",
		},
		"a missing layout of the image is refused": {remove("image/"), "expected the artifact image/, found none"},
		"a missing checksums.txt is refused":       {remove(checksums), "expected the artifact checksums.txt, found none"},
		"an empty file is refused":                 {write("install.yaml", ""), "expected install.yaml to have content, found an empty file"},
		"a file that does not match its checksum is refused": {
			write("install.yaml", "changed"), "checksums.txt: expected the checksums of the artifacts, found other checksums",
		},
		"a changed checksums.txt is refused": {
			write(checksums, "changed"), "expected a signature of the checksums that the ECDSA public key verifies, found an invalid signature",
		},
		"an invalid signature is refused": {
			write(signatureFile, "AAAA"), "expected a signature of the checksums that the ECDSA public key verifies, found an invalid signature",
		},
		"a malformed public key is refused": {write(publicKeyFile, "AAAA"), "expected a public key in PEM, found none"},
		"an unexpected file is refused":     {write("notes.txt", "text"), "expected no artifact notes.txt"},
		"a changed blob of the chart is refused": {func(t *testing.T, folder string) {
			t.Helper()
			blobs, err := filepath.Glob(filepath.Join(folder, "chart/blobs/sha256/*"))
			if err != nil || len(blobs) != 3 {
				t.Fatalf("expected three blobs, found %q and the error %v", blobs, err)
			}
			writeFile(t, blobs[0], []byte("changed"))
		}, "inspect chart/: expected the blob "},
		"an index of the chart without a manifest is refused": {
			write("chart/index.json", "{}"), "inspect chart/: expected one manifest in the index, found 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(folder, os.DirFS(built.Folder)); err != nil {
				t.Fatal(err)
			}
			expected := ListExpected("v0.1.0", krew.ListMachines(), true)
			if _, err := Check(folder, expected); err != nil {
				t.Fatalf("expected no problem before the damage, found %v", err)
			}
			row.damage(t, folder)
			if _, err := Check(folder, expected); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("expected an error with %q, found %v", row.want, err)
			}
		})
	}
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, folder string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func write(name, content string) func(*testing.T, string) {
	return func(t *testing.T, folder string) {
		t.Helper()
		writeFile(t, filepath.Join(folder, name), []byte(content))
	}
}

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	t.Parallel()
	changelog := []byte(`# Changelog

## Unreleased

## 0.2.0 - unreleased

- New ([page](docs/page.md#buttons), [other](https://example.com/a), [below](#old)).

## 0.1.0 - 2026-12-01

- Old.
`)
	if version := findNewestVersion(changelog); version != "v0.2.0" {
		t.Errorf("expected the newest version v0.2.0, found %q", version)
	}
	notes, err := extractNotes(changelog, "v0.2.0", false)
	want := "- New ([page](https://github.com/torpor-dev/torpor/blob/v0.2.0/docs/page.md#buttons), " +
		"[other](https://example.com/a), [below](#old)).\n"
	if diff := cmp.Diff(want, string(notes)); diff != "" || err != nil {
		t.Errorf("notes (-expected +found), error %v:\n%s", err, diff)
	}
	if notes, err := extractNotes(changelog, "v0.1.0", true); string(notes) != "- Old.\n" || err != nil {
		t.Errorf("expected the notes of the last section, found %q and the error %v", notes, err)
	}
}
