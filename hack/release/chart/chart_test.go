// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	testenv "github.com/torpor-dev/torpor/test/env"
)

const image = "registry.example/torpor:v1.2.3@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func mustBuild(t *testing.T, o Options) Package {
	t.Helper()
	p, err := o.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func fromRepository() Options {
	return Options{Root: os.DirFS("../../.."), Version: "v1.2.3", Image: image}
}

func TestPackageIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	first, second := mustBuild(t, fromRepository()), mustBuild(t, fromRepository())
	if !bytes.Equal(first.Archive, second.Archive) || !bytes.Equal(first.Metadata, second.Metadata) {
		t.Error("expected the same package twice, found two")
	}
	if first.FileName() != "torpor-1.2.3.tgz" {
		t.Errorf("expected the name of helm package, found %s", first.FileName())
	}
}

func TestLayoutIsValid(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "chart")
	if err := mustBuild(t, fromRepository()).WriteLayout(folder); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("expected one manifest, found %+v and the error %v", manifest, err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img, validate.Fast); err != nil {
		t.Errorf("expected a valid artifact, found %v", err)
	}
}

// TestHelmLoadsTheArchiveWithoutWarnings expects no symbolic links in the archive, because helm warns of each.
func TestHelmLoadsTheArchiveWithoutWarnings(t *testing.T) {
	t.Parallel()
	helm, file := testenv.HelmPath(t), filepath.Join(t.TempDir(), "torpor.tgz")
	if err := os.WriteFile(file, mustBuild(t, fromRepository()).Archive, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), helm, "template", file, "--kube-version", "1.36.0", "--set", "image.repository=registry.example/torpor")
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	if err := cmd.Run(); err != nil || warnings.Len() > 0 {
		t.Errorf("expected no warning, found %v:\n%s", err, &warnings)
	}
}

// TestVersionIsThatOfTheRepository builds the chart without setting a version, as a tutorial does.
func TestVersionIsThatOfTheRepository(t *testing.T) {
	o := fromRepository()
	o.Version = ""
	p := mustBuild(t, o)
	if p.Version == "" || !strings.Contains(string(p.Metadata), `"appVersion":"latest"`) {
		t.Errorf("expected the versions of the repository, found %q in %s", p.Version, p.Metadata)
	}
}

// TestHelmInstallsTheArtifact pushes the chart to a registry, and renders it with helm from there.
func TestHelmInstallsTheArtifact(t *testing.T) {
	t.Parallel()
	helm := testenv.HelmPath(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/charts/torpor"
	p := mustBuild(t, fromRepository())
	pushed, err := p.Push(t.Context(), repository)
	if err != nil || !strings.HasPrefix(pushed, repository+"@sha256:") {
		t.Fatalf("expected the chart by its digest in %s, found %q and the error %v", repository, pushed, err)
	}
	home := t.TempDir()
	run := func(args ...string) string {
		line := exec.CommandContext(t.Context(), helm, args...)
		line.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
		out, err := line.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	metadata := run("show", "chart", "oci://"+repository, "--version", "1.2.3", "--plain-http")
	for _, part := range []string{
		"version: 1.2.3\n", "appVersion: v1.2.3\n", "artifacthub.io/prerelease: \"false\"\n", "image: " + image + "\n",
	} {
		if !strings.Contains(metadata, part) {
			t.Errorf("expected %q in the metadata, found:\n%s", part, metadata)
		}
	}
	rendered := run("template", "oci://"+repository, "--version", "1.2.3", "--plain-http", "--kube-version", "1.36.0")
	if !strings.Contains(rendered, "image: "+image+"\n") {
		t.Errorf("expected the image %s without any value, found none", image)
	}
	folder := t.TempDir()
	run("pull", "oci://"+repository, "--version", "1.2.3", "--plain-http", "--destination", folder)
	pulled, err := os.ReadFile(filepath.Join(folder, p.FileName()))
	if err != nil || !bytes.Equal(pulled, p.Archive) {
		t.Errorf("expected the archive that was pushed, found %d bytes and the error %v", len(pulled), err)
	}
}

func TestWrongInputsAreRefused(t *testing.T) {
	t.Parallel()
	const values = "image:\n  repository: \"\"\n  tag: \"\"\n"
	files := func(name, content string) fstest.MapFS {
		return fstest.MapFS{"LICENSE": {Data: []byte("license")}, "charts/torpor/" + name: {Data: []byte(content)}}
	}
	for name, row := range map[string]struct {
		root  fstest.MapFS
		image string
		want  string
	}{
		"an image without a digest is refused": {
			files("values.yaml", values), "registry.example/torpor:v1", "expected an image with registry, tag and digest",
		},
		"an image without a tag is refused": {
			files("values.yaml", values), "registry.example/torpor@sha256:" + strings.Repeat("0", 64),
			"expected an image with registry, tag and digest",
		},
		"an invalid image is refused": {files("values.yaml", values), "Torpor", "expected an image such as"},
		"a values.yaml without the fields of the image is refused": {
			files("values.yaml", "replicas: 2\n"), image, "once under image: in values.yaml, found 0",
		},
		"a values.yaml that already names an image is refused": {
			files("values.yaml", "\nimage:\n  repository: a\n  tag: \"\"\n"), image,
			"once under image: in values.yaml, found 0",
		},
		"a chart without Chart.yaml is refused":    {files("values.yaml", values), "", "found no Chart.yaml"},
		"a Chart.yaml that is not YAML is refused": {files("Chart.yaml", "{"), "", "read Chart.yaml"},
		"a repository without a chart is refused":  {fstest.MapFS{}, "", "read the chart"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Root: row.root, Version: "v1.2.3", Image: row.image}
			if _, err := o.Build(); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("expected an error with %q, found %v", row.want, err)
			}
		})
	}
}
