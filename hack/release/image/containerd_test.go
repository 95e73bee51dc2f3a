// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/distribution/reference"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// containerd is a real containerd with its own folders, which is stopped at the end of the test.
type containerd struct{ parts, socket string }

// startContainerd starts a containerd. It skips the test if make node-parts has not fetched one, or if the user is
// not root.
func startContainerd(t *testing.T) containerd {
	t.Helper()
	c := containerd{parts: os.Getenv("TORPOR_NODE"), socket: filepath.Join(t.TempDir(), "containerd.sock")}
	if _, err := os.Stat(c.program("containerd")); err != nil || os.Geteuid() != 0 {
		t.Skip("expected root and, in the folder TORPOR_NODE, a containerd; run make node-parts and then this test as root on Debian")
	}
	dir := t.TempDir()
	settings := "version = 2\nroot = \"" + dir + "/root\"\nstate = \"" + dir + "/state\"\n" +
		"disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n" +
		"[grpc]\naddress = \"" + c.socket + "\"\n" +
		"[plugins.\"io.containerd.internal.v1.opt\"]\npath = \"" + dir + "/opt\"\n"
	file := filepath.Join(dir, "config.toml")
	testenv.ExpectNoError(t, os.WriteFile(file, []byte(settings), 0o600))
	testenv.StartProcess(t, c.program("containerd"), []string{"-c", file}, c.environment())
	testenv.Eventually(t, "containerd answers", func() error {
		_, err := c.tryCtr(t, "version")
		return err
	})
	return c
}

func (c containerd) program(name string) string { return filepath.Join(c.parts, "usr/bin", name) }

func (c containerd) environment() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	return []string{"LD_LIBRARY_PATH=" + filepath.Join(c.parts, "usr/lib", triplet) + ":" + filepath.Join(c.parts, "lib", triplet)}
}

// tryCtr runs ctr in the namespace of the kubelet.
func (c containerd) tryCtr(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.program("ctr"), append([]string{"-a", c.socket, "-n", "k8s.io"}, args...)...)
	cmd.Env = append(os.Environ(), c.environment()...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c containerd) ctr(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.tryCtr(t, args...)
	if err != nil {
		t.Fatalf("ctr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TestContainerdImportsTheArchive imports the archive as an administrator does, and with the flags of `kind load`.
// It expects the image to have the name that the runtime looks up for a Pod with this image.
func TestContainerdImportsTheArchive(t *testing.T) {
	c := startContainerd(t)
	amd64, arm64 := buildPrograms(t)
	built, err := Build(amd64, arm64)
	testenv.ExpectNoError(t, err)
	for _, asked := range []string{"torpor:dev", "localhost/torpor:dev", "registry.example/team/torpor:v1"} {
		dir := t.TempDir()
		archive := filepath.Join(dir, "torpor.tar")
		testenv.ExpectNoError(t, built.WriteLayout(filepath.Join(dir, "image"), asked))
		testenv.ExpectNoError(t, WriteArchive(filepath.Join(dir, "image"), archive))
		for flags, count := range map[string]int{"": 1, "--all-platforms --digests": 2} {
			t.Run(asked+flags, func(t *testing.T) {
				importFlags := append(strings.Fields(flags), "--snapshotter", snapshotter, archive)
				c.ctr(t, append([]string{"images", "import"}, importFlags...)...)
				c.expectImage(t, asked, count)
			})
		}
	}
}

// snapshotter is the name of a snapshotter that copies layers, so no overlay mounts are needed.
const snapshotter = "native"

// expectImage expects an image with the full name, and removes all images.
func (c containerd) expectImage(t *testing.T, asked string, count int) {
	t.Helper()
	all := strings.Fields(c.ctr(t, "images", "ls", "-q"))
	defer func() { c.ctr(t, append([]string{"images", "rm", "--sync"}, all...)...) }()
	ofPod, err := reference.ParseDockerRef(asked)
	testenv.ExpectNoError(t, err)
	// With --digests, the image has a second name, which consists of the date and the digest.
	isOfImport := regexp.MustCompile(`^import-[0-9-]+@sha256:[0-9a-f]{64}$`)
	testenv.ExpectEqual(t, "names", []string{ofPod.String()}, slices.DeleteFunc(slices.Clone(all), isOfImport.MatchString))
	testenv.ExpectEqual(t, "number of names", count, len(all))

	root := filepath.Join(t.TempDir(), "root")
	testenv.ExpectNoError(t, os.Mkdir(root, 0o755))
	c.ctr(t, "images", "mount", "--snapshotter", snapshotter, ofPod.String(), root)
	defer func() { c.ctr(t, "images", "unmount", "--rm", "--snapshotter", snapshotter, root) }()
	found, err := os.Stat(filepath.Join(root, ProgramPath))
	testenv.ExpectNoError(t, err)
	testenv.ExpectEqual(t, "mode of the program", os.FileMode(0o755), found.Mode())
}

func TestArchiveHasTheRequestedName(t *testing.T) {
	amd64, _ := buildPrograms(t)
	built, err := Build(amd64)
	testenv.ExpectNoError(t, err)
	for asked, want := range map[string]map[string]string{
		"torpor":                      {containerdName: "docker.io/library/torpor:latest", "org.opencontainers.image.ref.name": "latest"},
		"torpor:dev":                  {containerdName: "docker.io/library/torpor:dev", "org.opencontainers.image.ref.name": "dev"},
		"me/torpor:dev":               {containerdName: "docker.io/me/torpor:dev", "org.opencontainers.image.ref.name": "dev"},
		"localhost/torpor:dev":        {containerdName: "localhost/torpor:dev", "org.opencontainers.image.ref.name": "dev"},
		"registry.example:5000/t:v1":  {containerdName: "registry.example:5000/t:v1", "org.opencontainers.image.ref.name": "v1"},
		"Torpor:dev":                  nil,
		"torpor:de v":                 nil,
		"torpor:dev@sha256:" + digits: nil,
		"torpor@sha256:" + digits:     nil,
	} {
		folder := filepath.Join(t.TempDir(), "image")
		err := built.WriteLayout(folder, asked)
		if early := ValidateName(asked); (err == nil) != (want != nil) || (early == nil) != (err == nil) {
			t.Errorf("%s: expected an error: %t, found %v and, before the image is built, %v", asked, want == nil, err, early)
		}
		if want == nil {
			continue
		}
		index, err := layout.ImageIndexFromPath(folder)
		testenv.ExpectNoError(t, err)
		manifest, err := index.IndexManifest()
		testenv.ExpectNoError(t, err)
		if diff := cmp.Diff(want, manifest.Manifests[0].Annotations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", asked, diff)
		}
		one, other := filepath.Join(t.TempDir(), "one.tar"), filepath.Join(t.TempDir(), "other.tar")
		testenv.ExpectNoError(t, WriteArchive(folder, one))
		testenv.ExpectNoError(t, WriteArchive(folder, other))
		if !bytes.Equal(mustRead(t, one), mustRead(t, other)) {
			t.Errorf("%s: expected the same archive twice, found two", asked)
		}
	}
}

// digits are the hexadecimal digits of a digest.
const digits = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
