// SPDX-License-Identifier: Apache-2.0

package tutorials

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	documents = "../../../docs"
	folder    = documents + "/tutorials"
	// tutorialLimit is much longer than the longest page takes.
	tutorialLimit = 15 * time.Minute
	// longestLog is the maximum length of a shown log, in bytes.
	longestLog = 4096
)

// tutorial defines how a page is run.
type tutorial struct {
	// setUp contains the commands that the page expects its reader to have run; each must exit with 0.
	setUp []string
	// clean, if set, is the command that stops what setUp has started.
	clean string
	// down contains the arguments for local that stop what a failed tutorial has left running.
	down []string
	// needsPods is true if the page uses real Pods, for which the reader must be root on Debian.
	needsPods bool
}

// listTutorials returns the pages whose commands are run, by their paths below docs.
func listTutorials() map[string]tutorial {
	down, podsDown := []string{"down", "--dir", ".cache/up"}, []string{"pods", "down", "--dir", ".cache/pods"}
	return map[string]tutorial{
		"tutorials/fleet-admin":   {down: down},
		"tutorials/app-developer": {down: down},
		"tutorials/dba":           {down: podsDown, needsPods: true},
		"tutorials/nights":        {down: podsDown, needsPods: true},
		"local":                   {down: podsDown, needsPods: true},
		"kind":                    {down: podsDown, needsPods: true, setUp: []string{"make pods-up", "export KUBECONFIG=$PWD/.cache/pods/admin.kubeconfig"}, clean: "make pods-down"},
		"page": {down: podsDown, needsPods: true, setUp: []string{
			"make pods-up",
			"export KUBECONFIG=$PWD/.cache/pods/admin.kubeconfig PATH=$PWD/.cache/bin:$PATH",
			"helm install torpor charts/torpor -n torpor-system --create-namespace --set image.repository=localhost/torpor,image.tag=dev --wait",
		}},
	}
}

func TestTutorials(t *testing.T) {
	if os.Getenv("TORPOR_TUTORIALS") == "" {
		t.Skip("TORPOR_TUTORIALS is not set: the tutorials take minutes; run with `make test-tutorials`")
	}
	// Paths of sockets must be short, and the path of a subtest's folder is not.
	dir := t.TempDir()
	for name, how := range listTutorials() {
		t.Run(name, func(t *testing.T) {
			if how.needsPods {
				if why, err := exec.CommandContext(t.Context(), "../../../.ci/pods-can-run").CombinedOutput(); err != nil {
					t.Skipf("real pods cannot be created: %s", why)
				}
			}
			page, err := os.ReadFile(filepath.Join(documents, name+".md"))
			if err != nil {
				t.Fatal(err)
			}
			runTutorial(t, string(page), how, filepath.Join(dir, filepath.Base(name)))
		})
	}
}

func runTutorial(t *testing.T, page string, how tutorial, dir string) {
	t.Helper()
	typed := readCommands(page)
	if len(typed) == 0 {
		t.Fatal("expected commands, found none")
	}
	var commands []command
	for _, text := range how.setUp {
		commands = append(commands, command{text: text})
	}
	commands = append(commands, typed...)
	if how.clean != "" {
		commands = append(commands, command{text: how.clean})
	}
	makeCheckout(t, dir)
	t.Cleanup(func() {
		// If the tutorial has succeeded, it has already stopped everything.
		down := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(dir, ".cache", "bin", "local"), how.down...)
		down.Dir = dir
		_ = down.Run()
	})
	ctx, cancel := context.WithTimeout(t.Context(), tutorialLimit)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", writeScript(commands))
	shell.Dir = dir
	shell.Env = append(os.Environ(), "KUBECONFIG=", "PATH="+filepath.Join(dir, "shims")+":"+os.Getenv("PATH"))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Also end the processes that a tutorial leaves in the background.
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGTERM) }
	shell.WaitDelay = time.Minute
	var output bytes.Buffer
	shell.Stdout, shell.Stderr = &output, &output
	if err := shell.Run(); err != nil {
		t.Errorf("run the commands: %v", err)
	}
	// End the commands that a failed page has left in the background.
	_ = syscall.Kill(-shell.Process.Pid, syscall.SIGTERM)
	outputs := readOutputs(output.String())
	for i, c := range commands {
		printed, ended := outputs[i]
		if !ended {
			// The logs of processes in the background show why they ended.
			for _, name := range []string{"up.log", "pods.log", "manager.log"} {
				if log, err := os.ReadFile(filepath.Join(dir, ".cache", name)); err == nil {
					t.Logf("%s ends with:\n%s", name, log[max(0, len(log)-longestLog):])
				}
			}
			t.Fatalf("line %d: expected %q to end with 0, found that it did not:\n%s", c.line, c.text, output.String())
		}
		if missing := findMissing(c.shows, printed); missing != "" {
			t.Errorf("line %d: expected %q to print %q, found:\n%s", c.line, c.text, missing, printed)
		}
	}
}

// kindScript imports an image into each node as kind does: https://github.com/kubernetes-sigs/kind/blob/main/pkg/cluster/nodeutils/util.go
const kindScript = `#!/bin/sh
[ "$1 $2" = "load image-archive" ] || { echo "expected load image-archive, found $*"; exit 1; }
export LD_LIBRARY_PATH=$(echo $PWD/.cache/node/usr/lib/*-linux-gnu):$(echo $PWD/.cache/node/lib/*-linux-gnu)
nodes=$(pgrep -f "^containerd -c .*$(basename "$PWD")/.cache/pods") || { echo "expected nodes, found none"; exit 1; }
for pid in $nodes; do
  .cache/node/usr/bin/ctr -a "/proc/$pid/root/run/containerd.sock" -n k8s.io images import --all-platforms --digests "$3" || exit 1
done
`

// makeCheckout creates a folder that looks like the repository for the commands of a page. Its make has the targets
// that start and stop environments; all programs are already built.
func makeCheckout(t *testing.T, dir string) {
	t.Helper()
	local := os.Getenv("TORPOR_LOCAL")
	if local == "" {
		t.Skip("TORPOR_LOCAL is not set: expected the path of the program local; run with `make test-tutorials`")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	makeFile := "#!/bin/sh\ncase \"$1\" in\n" +
		"  up) shift; exec .cache/bin/local up --dir .cache/up $(printf '%s' \"$*\" | sed 's/^UP=//') ;;\n" +
		"  down) exec .cache/bin/local down --dir .cache/up ;;\n" +
		"  pods-up) exec .cache/bin/local pods up --dir .cache/pods --parts .cache/node --mysql .cache/mysql ;;\n" +
		"  pods-down) exec .cache/bin/local pods down --dir .cache/pods ;;\n" +
		"  mysql|local|torpor|kubectl-torpor|kubectl-moco|helm) [ \"$1\" != mysql ] || shift; for name; do [ -x .cache/bin/\"$name\" ] || exit 1; done ;;\n" +
		"  node-parts) [ -e .cache/node/names/iptables ] ;;\n" +
		"  image) release=$(printf '%s' \"$2\" | sed \"s|^RELEASE=||; s|--archive |&$PWD/|\"); dir=$PWD; cd " + root + "\n" +
		"    CGO_ENABLED=0 exec go run -trimpath ./hack/release image --dir \"$dir/.cache/release\" $release ;;\n" +
		"  chart) archive=$PWD/$(printf '%s' \"$2\" | sed 's|^RELEASE=--archive ||'); cd " + root + "\n" +
		"    CGO_ENABLED=0 go run -trimpath ./hack/release chart --archive \"$archive\" | sed \"s|$OLDPWD/||\" ;;\n" +
		"  *) echo \"expected a target of the stub, found $1\"; exit 1 ;;\nesac\n"
	links := map[string]string{"config": "config", "examples": "examples", "charts": "charts", "local": "local", "conditional": "conditional", "go.mod": "go.mod", "go.sum": "go.sum"}
	for _, sub := range []string{".cache", "shims"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range links {
		if err := os.Symlink(filepath.Join(root, to), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"bin": filepath.Dir(local), "node": os.Getenv("TORPOR_NODE"), "mysql": os.Getenv("TORPOR_MYSQL")} {
		if err := os.Symlink(to, filepath.Join(dir, ".cache", name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range map[string]string{"make": makeFile, "kind": kindScript} {
		if err := os.WriteFile(filepath.Join(dir, "shims", name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStandInForMakeHasOnlyTargetsOfTheMakefile verifies that the stub of make has no targets that the Makefile
// lacks.
func TestStandInForMakeHasOnlyTargetsOfTheMakefile(t *testing.T) {
	text, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"up", "down", "pods-up", "pods-down", "mysql", "local", "node-parts", "torpor", "kubectl-torpor", "kubectl-moco", "image", "chart"} {
		if !strings.Contains(string(text), fmt.Sprintf("\n%s", target)) && !strings.Contains(string(text), fmt.Sprintf(" %s ", target)) && !strings.Contains(string(text), fmt.Sprintf(" %s:", target)) {
			t.Errorf("expected the target %s in the Makefile, found none", target)
		}
	}
}
