// SPDX-License-Identifier: Apache-2.0

package krew

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const address = "https://example.com/releases/download/v1.2.3"

// packagePlugin builds an archive for each machine, with text files instead of programs.
func packagePlugin(t *testing.T, folder string, p Plugin) PluginManifest {
	t.Helper()
	var programs []BuiltPlugin
	for _, m := range ListMachines() {
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, []byte("program for "+m.OS+" on "+m.Architecture), 0o600); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, BuiltPlugin{m, path})
	}
	m, err := p.Package(folder, address, "v1.2.3", []byte("license"), programs)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestManifestsLeadToTheArchives(t *testing.T) {
	for _, p := range ListPlugins() {
		t.Run(p.Name, func(t *testing.T) {
			folder := t.TempDir()
			packagePlugin(t, folder, p)
			text, err := os.ReadFile(filepath.Join(folder, p.Name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			m, err := Parse(p.Name+".yaml", text)
			if err != nil || len(m.Spec.Platforms) != len(ListMachines()) {
				t.Fatalf("expected a manifest with %d platforms, found %+v and the error %v", len(ListMachines()), m, err)
			}
			for _, platform := range m.Spec.Platforms {
				archive, err := os.ReadFile(filepath.Join(folder, strings.TrimPrefix(platform.URI, address+"/")))
				if err != nil {
					t.Fatal(err)
				}
				sum := sha256.Sum256(archive)
				if found := hex.EncodeToString(sum[:]); found != platform.SHA256 {
					t.Errorf("%s: expected the sum %s, found %s", platform.URI, platform.SHA256, found)
				}
				files := unpack(t, archive)
				if files["LICENSE"] != "license" || !strings.HasPrefix(files[platform.Bin], "program for "+platform.Selector.MatchLabels["os"]) || len(files) != 2 {
					t.Errorf("%s: expected the license and %s, found %q", platform.URI, platform.Bin, files)
				}
			}
		})
	}
}

func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("expected no time of a build in the archive, found %s", header.ModTime)
		}
		files[header.Name] = string(content)
	}
}

func TestArchivesAreTheSameEachTime(t *testing.T) {
	first, second := packagePlugin(t, t.TempDir(), ListPlugins()[0]), packagePlugin(t, t.TempDir(), ListPlugins()[0])
	for i, p := range first.Spec.Platforms {
		if p.SHA256 != second.Spec.Platforms[i].SHA256 {
			t.Errorf("%s: expected the same sum twice, found %s and %s", p.URI, p.SHA256, second.Spec.Platforms[i].SHA256)
		}
	}
}

func TestInvalidKrewManifestsAreRefused(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*PluginManifest)
		want   string
	}{
		"a manifest of another kind: refused":                    {func(m *PluginManifest) { m.Kind = "Receipt" }, "expected apiVersion krew.googlecontainertools.github.com/v1alpha2 and kind Plugin"},
		"a plugin name that differs from the file name: refused": {func(m *PluginManifest) { m.Metadata.Name = "other" }, "expected the name of the file"},
		"a plugin without a short description: refused":          {func(m *PluginManifest) { m.Spec.ShortDescription = "" }, "short description"},
		"a short description of two lines: refused":              {func(m *PluginManifest) { m.Spec.ShortDescription = "a\nb" }, "short description"},
		"a version without the prefix v: refused":                {func(m *PluginManifest) { m.Spec.Version = "1.2.3" }, "expected a version"},
		"a version that is not semantic: refused":                {func(m *PluginManifest) { m.Spec.Version = "vlatest" }, "expected a version"},
		"a plugin without a platform: refused":                   {func(m *PluginManifest) { m.Spec.Platforms = nil }, "expected a platform"},
		"a platform with an invalid SHA-256 sum: refused":        {func(m *PluginManifest) { m.Spec.Platforms[0].SHA256 = "x" }, "platform 0: expected the SHA-256"},
		"a platform with an http address: refused":               {func(m *PluginManifest) { m.Spec.Platforms[0].URI = "http://example.com/a" }, "platform 0: expected an https address"},
		"a platform without the field bin: refused":              {func(m *PluginManifest) { m.Spec.Platforms[0].Bin = "" }, "platform 0: expected the program"},
		"a bin outside of the archive: refused":                  {func(m *PluginManifest) { m.Spec.Platforms[0].Bin = "../../bin/sh" }, "platform 0: expected the program"},
		"a file without a destination: refused":                  {func(m *PluginManifest) { m.Spec.Platforms[0].Files = []FileMove{{From: "a"}} }, "platform 0: expected a file with a path"},
		"a platform with a label unknown to krew: refused": {func(m *PluginManifest) {
			m.Spec.Platforms[0].Selector.MatchLabels = map[string]string{"os": "linux", "cpu": "arm64"}
		}, "platform 0: expected the labels os and arch"},
		"two platforms for the same machines: refused": {func(m *PluginManifest) { m.Spec.Platforms[1] = m.Spec.Platforms[0] }, "platform 1: expected one platform for linux/amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			m := packagePlugin(t, t.TempDir(), ListPlugins()[0])
			row.change(&m)
			text, err := yaml.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse("torpor.yaml", text); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("expected an error with %q, found %v", row.want, err)
			}
		})
	}
	if _, err := Parse("torpor.yaml", []byte("spec: {sha: x}\n")); err == nil {
		t.Error("expected an error for a field that krew does not know, found none")
	}
}

func TestPlatformsAreParsed(t *testing.T) {
	if m, err := ParseMachine("linux/arm64"); err != nil || m != (Machine{"linux", "arm64"}) {
		t.Errorf("expected linux on arm64, found %s and the error %v", m, err)
	}
	for _, wrong := range []string{"linux", "linux/386", "windows/arm64", ""} {
		if _, err := ParseMachine(wrong); err == nil || !strings.Contains(err.Error(), "linux/amd64 linux/arm64") {
			t.Errorf("%q: expected an error with the platforms, found %v", wrong, err)
		}
	}
}
