// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// gateway is the machine's address on the bridge.
	gateway, bridge = "10.250.0.1", "torpor0"
	// commandTimeout is much longer than any command takes on a busy machine.
	commandTimeout = 5 * time.Minute
)

// hypervisor is a libvirtd in its own namespaces: when it ends, its guests and mounts end, too.
type hypervisor struct{ tree, work string }

func startHypervisor(t *testing.T, tree, work string) hypervisor {
	t.Helper()
	script, err := filepath.Abs("testdata/hypervisor.sh")
	testenv.ExpectNoError(t, err)
	h := hypervisor{tree, work}
	p := testenv.StartProcess(t, "/bin/sh", []string{script}, []string{"TREE=" + tree, "WORK=" + work}, func(cmd *exec.Cmd) {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID
	})
	t.Cleanup(func() { p.KillAtOnce(t) }) // The guests are killed with the hypervisor, without a shutdown.
	testenv.EventuallyWithin(t, commandTimeout, "libvirtd answers", func() error {
		_, err := h.tryVirsh(t, "list")
		return err
	})
	return h
}

func (h hypervisor) socket() string { return filepath.Join(h.work, "libvirt-sock") }

func (h hypervisor) tryVirsh(t *testing.T, args ...string) (string, error) {
	t.Helper()
	libraries := filepath.Join(h.tree, "lib/x86_64-linux-gnu") + ":" + filepath.Join(h.tree, "usr/lib/x86_64-linux-gnu")
	return tryRun(t, filepath.Join(h.tree, "lib64/ld-linux-x86-64.so.2"), append([]string{
		"--library-path", libraries, filepath.Join(h.tree, "usr/bin/virsh"), "-q", "-c", "qemu+unix:///system?socket=" + h.socket(),
	}, args...)...)
}

func (h hypervisor) virsh(t *testing.T, args ...string) {
	t.Helper()
	_, err := h.tryVirsh(t, args...)
	testenv.ExpectNoError(t, err)
}

// findGuest returns the process id of a guest; 0 if it is stopped.
func findGuest(t *testing.T, name string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	testenv.ExpectNoError(t, err)
	for _, file := range files {
		text, _ := os.ReadFile(file) // Processes may end during the search.
		words := strings.Split(string(text), "\x00")
		if strings.HasSuffix(words[0], "qemu-system-x86_64") && bytes.Contains(text, []byte("guest="+name+",")) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			testenv.ExpectNoError(t, err)
			return pid
		}
	}
	return 0
}

// cutPower kills a guest, as a power cut would.
func cutPower(t *testing.T, name string) {
	t.Helper()
	pid := findGuest(t, name)
	if pid == 0 {
		t.Fatalf("expected guest %s to run, found it off", name)
	}
	testenv.ExpectNoError(t, syscall.Kill(pid, syscall.SIGKILL))
}

func tryRun(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), commandTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		err = errors.Join(err, errors.New(filepath.Base(program)+" "+strings.Join(args, " ")+": "+text))
	}
	return text, err
}

func mustRun(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := tryRun(t, program, args...)
	testenv.ExpectNoError(t, err)
	return out
}
