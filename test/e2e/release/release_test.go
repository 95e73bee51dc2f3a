// SPDX-License-Identifier: Apache-2.0

// Package release tests a release with other projects' programs: krew installs the plugins as users do, and the
// validator of the Operator Lifecycle Manager checks the bundle. It runs with `make test-release`, because these
// programs take minutes to build.
package release

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// findJudge returns the path of a program that `make test-release` has built.
func findJudge(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(os.Getenv("TORPOR_LOCAL")), name)
	if _, err := os.Stat(path); os.Getenv("TORPOR_LOCAL") == "" || err != nil {
		t.Skipf("expected the program %s next to that of TORPOR_LOCAL, found none: run with `make test-release`", name)
	}
	return path
}

// build runs the program that builds releases, in the repository.
func build(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "./hack/release"}, args...)...)
	cmd.Dir = filepath.Join("..", "..", "..")
	run(t, cmd)
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out.String())
	}
	return out.String()
}

func TestKrewInstallsThePlugins(t *testing.T) {
	t.Parallel()
	krew := findJudge(t, "krew")
	folder := t.TempDir()
	build(t, "plugins", "--dir", folder, "--only-this-machine", "--version", "v1.2.3")
	for _, plugin := range []string{"torpor", "moco"} {
		archives, err := filepath.Glob(filepath.Join(folder, "kubectl-"+plugin+"_*.tar.gz"))
		if err != nil || len(archives) != 1 {
			t.Fatalf("expected the archive of %s, found %q (%v)", plugin, archives, err)
		}
		root := t.TempDir()
		install := exec.CommandContext(t.Context(), krew, "install", "--manifest", filepath.Join(folder, plugin+".yaml"), "--archive", archives[0])
		install.Env = append(os.Environ(), "KREW_ROOT="+root, "HOME="+root)
		run(t, install)
		installed := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "kubectl-"+plugin), "--help")
		if help := run(t, installed); !strings.Contains(help, "kubectl "+plugin+" status") {
			t.Errorf("expected the help of kubectl %s, found %s", plugin, help)
		}
	}
}

func TestOLMAcceptsTheBundle(t *testing.T) {
	t.Parallel()
	verify := findJudge(t, "operator-verify")
	folder := t.TempDir()
	build(t, "bundle", "--dir", folder, "--image", "registry.example/torpor:v1.2.3", "--version", "v1.2.3", "--created", "2026-01-02T15:04:05Z")
	// The program prints its findings, but always exits with 0.
	if said := run(t, exec.CommandContext(t.Context(), verify, "manifests", "--object_validate", filepath.Join(folder, "bundle"))); strings.TrimSpace(said) != "" {
		t.Errorf("expected no finding, found %s", said)
	}
	if err := os.Remove(filepath.Join(folder, "bundle", "manifests", "hive.openshift.io_clusterdeployments.yaml")); err != nil {
		t.Fatal(err)
	}
	if said := run(t, exec.CommandContext(t.Context(), verify, "manifests", filepath.Join(folder, "bundle"))); !strings.Contains(said, "Kind=ClusterDeployment") {
		t.Errorf("expected a finding about a definition that is missing, found %q", said)
	}
}

func TestHelmAcceptsTheChartArchive(t *testing.T) {
	t.Parallel()
	helm := findJudge(t, "helm")
	folder := t.TempDir()
	build(t, "chart", "--dir", folder, "--version", "v1.2.3")
	rendered := run(t, exec.CommandContext(t.Context(), helm, "template", filepath.Join(folder, "torpor-1.2.3.tgz"), "--kube-version", "1.36.0",
		"--set", "crds=true,image.repository=registry.example/torpor"))
	// The archive contains the files that the chart's folders link to.
	for _, part := range []string{"image: registry.example/torpor:v1.2.3", "name: torpor-hibernation-record", "name: clusterdeployments.hive.openshift.io"} {
		if !strings.Contains(rendered, part) {
			t.Errorf("expected %q, found none", part)
		}
	}
}
