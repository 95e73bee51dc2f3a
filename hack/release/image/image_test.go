// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/torpor-dev/torpor/hack/release/sbom"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// buildPrograms returns a Linux program for amd64, and a copy that claims to be for arm64, because compiling takes
// long and the tests run neither.
func buildPrograms(t *testing.T) (amd64, arm64 string) {
	t.Helper()
	amd64 = filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", amd64, "./testdata/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	return amd64, writeProgram(t, rename(mustRead(t, amd64), elf.EM_AARCH64, "GOARCH=amd64", "GOARCH=arm64"))
}

// rename changes the machine and a build setting of a program.
func rename(code []byte, machine elf.Machine, before, after string) []byte {
	const machineOffset = 18
	changed := bytes.ReplaceAll(code, []byte("build\t"+before+"\n"), []byte("build\t"+after+"\n"))
	binary.LittleEndian.PutUint16(changed[machineOffset:], uint16(machine))
	return changed
}

func writeProgram(t *testing.T, code []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "torpor")
	if err := os.WriteFile(path, code, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestImage builds, writes and pushes an image.
func TestImage(t *testing.T) {
	amd64, arm64 := buildPrograms(t)
	built, err := Build(amd64, arm64)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := built.Index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a second build has the same digest", func(t *testing.T) {
		again, err := Build(writeProgram(t, mustRead(t, amd64)), arm64)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := again.Index.Digest(); err != nil || found != digest {
			t.Errorf("expected %s again, found %s and the error %v", digest, found, err)
		}
		for i := range built.Bills {
			if !bytes.Equal(built.Bills[i].Document, again.Bills[i].Document) {
				t.Errorf("expected the same bill of materials for %s, found another", built.Bills[i].Platform)
			}
		}
	})
	t.Run("the index has an image for each processor, with the program and few other files", func(t *testing.T) { testContents(t, built.Index) })
	t.Run("the image is valid in a layout", func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "image")
		if err := built.WriteLayout(folder, ""); err != nil {
			t.Fatal(err)
		}
		written, err := layout.ImageIndexFromPath(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(written); err != nil {
			t.Errorf("expected a valid layout, found %v", err)
		}
		manifest, err := written.IndexManifest()
		if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != digest || len(manifest.Manifests[0].Annotations) != 0 {
			t.Errorf("expected the index alone, without a name, found %+v and the error %v", manifest, err)
		}
	})
	t.Run("the image is the same in a registry, with its bill of materials", func(t *testing.T) { testRegistry(t, built, digest) })
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func testContents(t *testing.T, index v1.ImageIndex) {
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil || config.Architecture != m.Platform.Architecture || config.Config.User != UserAndGroup || config.Config.Entrypoint[0] != ProgramPath {
			t.Errorf("expected a program for %s that is no root, found %+v and the error %v", m.Platform, config, err)
		}
		files := map[string]int64{}
		for r := tar.NewReader(mutate.Extract(img)); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			files[header.Name] = header.Mode
			if !header.ModTime.Equal(config.Created.Time) {
				t.Errorf("%s: expected the time of the commit, found %s", header.Name, header.ModTime)
			}
		}
		if diff := cmp.Diff(map[string]int64{"etc": 0o755, "etc/group": 0o644, "etc/passwd": 0o644, "tmp": 0o1777, "torpor": 0o755}, files); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
}

func testRegistry(t *testing.T, built Release, digest v1.Hash) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	t.Cleanup(server.Close)
	target := strings.TrimPrefix(server.URL, "http://") + "/torpor:v1"
	pushed, err := built.Push(t.Context(), target)
	if err != nil || !strings.HasSuffix(pushed, "@"+digest.String()) {
		t.Fatalf("expected the digest %s, found %s and the error %v", digest, pushed, err)
	}
	ref, err := name.ParseReference(target)
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Index(ref, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(found); err != nil {
		t.Errorf("expected a valid image in the registry, found %v", err)
	}
	manifest, err := found.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range manifest.Manifests {
		referrers, err := remote.Referrers(ref.Context().Digest(m.Digest.String()), remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		of, err := referrers.IndexManifest()
		if err != nil || len(of.Manifests) != 1 {
			t.Fatalf("expected one bill of materials for %s, found %+v and the error %v", m.Platform, of, err)
		}
		artifact, err := remote.Image(ref.Context().Digest(of.Manifests[0].Digest.String()), remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if text := readOnlyLayer(t, artifact); !bytes.Equal(text, built.Bills[i].Document) {
			t.Errorf("expected the bill of materials of %s, found another", m.Platform)
		}
	}
}

func readOnlyLayer(t *testing.T, img v1.Image) []byte {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("expected one layer, found %d and the error %v", len(layers), err)
	}
	if kind, err := layers[0].MediaType(); err != nil || kind != sbom.MediaType {
		t.Errorf("expected the type %s, found %s and the error %v", sbom.MediaType, kind, err)
	}
	in, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestBillOfMaterialsNamesEveryModule reads the document as a vulnerability scanner does.
func TestBillOfMaterialsNamesEveryModule(t *testing.T) {
	torpor := testenv.TorporPath(t)
	p, err := readProgram(torpor)
	if err != nil {
		t.Fatal(err)
	}
	text, err := sbom.Describe(p.info)
	if err != nil {
		t.Fatal(err)
	}
	var d sbom.BillOfMaterials
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	named := map[string]sbom.BillComponent{}
	for _, c := range d.Components {
		named[c.Name] = c
	}
	for _, m := range p.info.Deps {
		c, isNamed := named[m.Path]
		// A module of this repository has neither a version nor a sum.
		if m.Replace == nil && (!isNamed || c.Version != m.Version || len(c.Hashes) != 1 || c.PURL == "") {
			t.Errorf("expected %s %s with its sum, found %+v", m.Path, m.Version, c)
		}
	}
	if d.BOMFormat != "CycloneDX" || d.SpecVersion == "" || named["std"].Version != p.info.GoVersion || len(d.Dependencies) != len(d.Components)+1 || !strings.HasPrefix(d.SerialNumber, "urn:uuid:") {
		t.Errorf("expected a document of CycloneDX with the standard library, found %+v", d.Metadata)
	}
}

func TestProgramsThatCouldNotRunAreRefused(t *testing.T) {
	amd64, arm64 := buildPrograms(t)
	code := mustRead(t, amd64)
	for name, row := range map[string]struct {
		programs []string
		want     string
	}{
		"an empty list of programs: refused":                 {nil, "expected a program for each platform"},
		"two programs for one platform: refused":             {[]string{arm64, arm64}, "a second one for linux/arm64"},
		"a file that is not a Go program: refused":           {[]string{writeProgram(t, []byte("#!/bin/sh\n"))}, "expected a program of Go"},
		"a program for another processor: refused":           {[]string{writeProgram(t, rename(code, elf.EM_RISCV, "", ""))}, "expected code for EM_X86_64, found EM_RISCV"},
		"a program for another operating system: refused":    {[]string{writeProgram(t, rename(code, elf.EM_X86_64, "GOOS=linux", "GOOS=minix"))}, "expected a program for linux"},
		"a program with paths of the build machine: refused": {[]string{writeProgram(t, rename(code, elf.EM_X86_64, "-trimpath=true", "-trimpath=nope"))}, "contains no paths"},
		"a program without CA certificates: refused":         {[]string{writeProgram(t, bytes.ReplaceAll(code, []byte("dep\t"+authorities+"\t"), []byte("dep\tgolang.org/x/crypto/x509roots/missing_\t")))}, "public authorities"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Build(row.programs...); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("expected an error with %q, found %v", row.want, err)
			}
		})
	}
}
