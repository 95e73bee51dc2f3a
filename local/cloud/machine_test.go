// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func shellUserData(t *testing.T, script string, env map[string]string, log string) []string {
	t.Helper()
	text, err := json.Marshal(machineCommand{Argv: []string{"/bin/sh", "-c", script, "sh", "{{ip}}", "{{id}}", "{{dns}}"}, Env: env, Log: log})
	expectNoError(t, err)
	return []string{"UserData", base64.StdEncoding.EncodeToString(text)}
}

// readyScript is a script that prints "ready" and then waits; all its processes end immediately on SIGTERM.
const readyScript = `echo ready; while :; do sleep 0.01; done`

// ignoresTermScript is readyScript, but ignores SIGTERM.
const ignoresTermScript = `trap "" TERM; ` + readyScript

func awaitLog(t *testing.T, path, wanted string) {
	t.Helper()
	eventually(t, "the log holds "+wanted, func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), wanted)
	})
}

// isAlive reports whether a process exists and is not a zombie.
func isAlive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && !errors.Is(err, os.ErrNotExist)
	}
	return !strings.Contains(string(text), ") Z ")
}

func TestAMachineRunsWhileItsInstanceRuns(t *testing.T) {
	r := newEnv(t, Config{AllowCommands: true, StopLatency: 20 * time.Millisecond})
	log := filepath.Join(t.TempDir(), "log")
	script := `echo "$1 $2 $3 $GREETING $TORPOR_CLOUD_INSTANCE" >&2; trap "echo asked; exit 0" TERM; ` + readyScript
	id := r.launchInstances(1, shellUserData(t, script, map[string]string{"GREETING": "hello {{ip}}"}, log)...)[0]
	up := r.awaitState(id, running)
	awaitLog(t, log, fmt.Sprintf("%s %s %s hello %s %s\n", up.IP, id, up.DNS, up.IP, id))
	awaitLog(t, log, "ready")
	pid := r.listInstances()[id].PID
	if !isAlive(pid) {
		t.Errorf("pid %d of the running instance is not there", pid)
	}
	r.call("StopInstances", "InstanceId.1", id)
	r.awaitState(id, stopped)
	awaitLog(t, log, "asked")
	if isAlive(pid) || r.listInstances()[id].PID != 0 {
		t.Errorf("pid %d, shown %d, outlives the stop", pid, r.listInstances()[id].PID)
	}
	r.call("StartInstances", "InstanceId.1", id)
	r.awaitState(id, running)
	if again := r.listInstances()[id].PID; again == pid || !isAlive(again) {
		t.Errorf("pid %d after the start, before %d", again, pid)
	}
}

func TestAMachineThatDoesNotListenIsKilledAtTheEndOfTheLatency(t *testing.T) {
	const latency = 300 * time.Millisecond
	for name, test := range map[string]struct {
		action string
		end    powerState
	}{
		"stop":      {"StopInstances", stopped},
		"terminate": {"TerminateInstances", terminated},
	} {
		t.Run(name, func(t *testing.T) {
			r := newEnv(t, Config{AllowCommands: true, StopLatency: latency})
			log := filepath.Join(t.TempDir(), "log")
			id := r.launchInstances(1, shellUserData(t, ignoresTermScript, nil, log)...)[0]
			awaitLog(t, log, "ready")
			pid := r.listInstances()[id].PID
			asked := time.Now()
			r.call(test.action, "InstanceId.1", id)
			eventually(t, "the machine is gone", func() bool { return !isAlive(pid) })
			if took := time.Since(asked); took < latency {
				t.Errorf("killed after %s, before the latency", took)
			}
			r.awaitState(id, test.end)
		})
	}
}

func TestAForcedStopKillsAtOnce(t *testing.T) {
	r := newEnv(t, Config{AllowCommands: true, StopLatency: time.Hour})
	log := filepath.Join(t.TempDir(), "log")
	id := r.launchInstances(1, shellUserData(t, ignoresTermScript, nil, log)...)[0]
	awaitLog(t, log, "ready")
	pid := r.listInstances()[id].PID
	r.call("StopInstances", "InstanceId.1", id)
	if got := r.call("StopInstances", "InstanceId.1", id, "Force", "true").Instances[0]; got.Previous != "stopping" || got.Current != "stopping" {
		t.Errorf("forced stop answered %+v", got)
	}
	eventually(t, "the machine is gone", func() bool { return !isAlive(pid) })
	if got := r.describeInstance(id); got.State != "stopping" {
		t.Errorf("the latency does not elapse: %+v", got)
	}
}

func TestAMachineThatEndsByItselfStopsItsInstance(t *testing.T) {
	r := newEnv(t, Config{AllowCommands: true})
	dir := t.TempDir()
	child, leave := filepath.Join(dir, "child"), filepath.Join(dir, "leave")
	script := fmt.Sprintf(`sleep 1000 & echo $! > %s; while [ ! -e %s ]; do sleep 0.01; done; exit 3`, child, leave)
	id := r.launchInstances(1, shellUserData(t, script, nil, "")...)[0]
	r.awaitState(id, running)
	left := readPID(t, child)
	expectNoError(t, os.WriteFile(leave, nil, 0o600))
	down := r.awaitState(id, stopped)
	if down.ReasonCode != "Client.InstanceInitiatedShutdown" {
		t.Errorf("stopped instance %+v", down)
	}
	if isAlive(left) {
		t.Errorf("what the machine had started, pid %d, outlives it", left)
	}
}

func TestAMachineThatCannotStartLeavesItsInstanceStopped(t *testing.T) {
	r := newEnv(t, Config{AllowCommands: true})
	userData := base64.StdEncoding.EncodeToString([]byte(`{"command":["/nowhere/at/all"]}`))
	id := r.launchInstances(1, "UserData", userData)[0]
	if down := r.awaitState(id, stopped); down.ReasonCode != "Client.InternalError" {
		t.Errorf("stopped instance %+v", down)
	}
}

func TestInvalidUserDataIsRefused(t *testing.T) {
	r := newEnv(t, Config{AllowCommands: true})
	for name, text := range map[string]string{
		"user data with an empty command": `{"command":[]}`,
		"user data with an unknown field": `{"command":["/bin/true"],"user":"root"}`,
		"user data with malformed JSON":   `{"command":`,
	} {
		got := r.call("RunInstances", "ImageId", "ami", "MinCount", "1", "MaxCount", "1", "UserData", base64.StdEncoding.EncodeToString([]byte(text)))
		if got.Code != "InvalidParameterValue" {
			t.Errorf("%s answered %+v", name, got)
		}
	}
	r.launchInstances(1, "UserData", base64.StdEncoding.EncodeToString([]byte("#cloud-config\n")))
}

func TestClosePowersOffAndNewPowersOn(t *testing.T) {
	config := Config{Dir: t.TempDir(), AllowCommands: true}
	log := filepath.Join(t.TempDir(), "log")
	r := newEnv(t, config)
	id := r.launchInstances(1, shellUserData(t, ignoresTermScript, nil, log)...)[0]
	awaitLog(t, log, "ready")
	before := r.listInstances()[id]
	if _, err := New(config); err == nil {
		t.Error("two clouds open one folder")
	}
	r.cloud.gracePeriod = 50 * time.Millisecond
	if err := r.cloud.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if isAlive(before.PID) {
		t.Errorf("pid %d outlives the cloud", before.PID)
	}
	if got := r.call("DescribeInstances"); got.Code != "Unavailable" || got.status != http.StatusServiceUnavailable {
		t.Errorf("the closed cloud answered %+v", got)
	}
	r = newEnv(t, config)
	after := r.listInstances()[id]
	if after.State != "running" || after.PID == before.PID || !isAlive(after.PID) || !after.ChangedAt.Equal(before.ChangedAt) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	r.cloud.gracePeriod = 50 * time.Millisecond
}

type cloudProcess struct {
	env

	cmd *exec.Cmd
}

// serveUntilInputEnds serves a cloud in a subprocess until its input is closed, at the latest by the end of its
// parent.
func serveUntilInputEnds(dir string) error {
	c, err := New(Config{Dir: dir, AllowCommands: true, StopLatency: 400 * time.Millisecond})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: c.HTTPHandler(), ReadHeaderTimeout: time.Minute}
	go func() {
		// The parent notices that the server has ended.
		_ = server.Serve(listener)
	}()
	fmt.Printf("http://%s\n", listener.Addr())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := errors.Join(server.Close(), c.Close()); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

func startCloudProcess(t *testing.T, dir string) *cloudProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CLOUD_TEST_DIR="+dir)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	expectNoError(t, err)
	output, err := cmd.StdoutPipe()
	expectNoError(t, err)
	expectNoError(t, cmd.Start())
	t.Cleanup(func() {
		// Both calls fail if the test has already killed the process.
		_ = input.Close()
		_ = cmd.Wait()
	})
	url, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the subprocess does not say where it serves: %v", err)
	}
	return &cloudProcess{env: env{t: t, url: strings.TrimSpace(url)}, cmd: cmd}
}

func (s *cloudProcess) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	// The process was killed, so an error is expected.
	_ = s.cmd.Wait()
}

func readPID(t *testing.T, path string) int {
	t.Helper()
	var pid int
	eventually(t, path+" holds a pid", func() bool {
		text, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

func TestKilledCloudRestoresItsState(t *testing.T) {
	dir, logs := t.TempDir(), t.TempDir()
	s := startCloudProcess(t, dir)
	childFile := filepath.Join(logs, "child")
	staying := s.launchInstances(1, shellUserData(t, `sleep 1000 & echo $! > `+childFile+`; wait`, nil, "")...)[0]
	leaving := s.launchInstances(1, shellUserData(t, ignoresTermScript, nil, filepath.Join(logs, "leaving"))...)[0]
	s.awaitState(staying, running)
	awaitLog(t, filepath.Join(logs, "leaving"), "ready")
	child := readPID(t, childFile)
	before := s.listInstances()
	expectNoError(t, os.Remove(childFile))
	s.call("StopInstances", "InstanceId.1", leaving)
	asked := time.Now()
	s.kill()
	for _, i := range before {
		eventually(t, fmt.Sprintf("pid %d died with the cloud", i.PID), func() bool { return !isAlive(i.PID) })
	}
	if !isAlive(child) {
		t.Fatal("the child of a machine is expected to be an orphan")
	}

	s = startCloudProcess(t, dir)
	eventually(t, "the orphan of the previous process is gone", func() bool { return !isAlive(child) })
	after := s.listInstances()[staying]
	if after.State != "running" || after.PID == before[staying].PID || !isAlive(after.PID) || !after.ChangedAt.Equal(before[staying].ChangedAt) {
		t.Errorf("before %+v, after %+v", before[staying], after)
	}
	if again := readPID(t, childFile); again == child {
		t.Errorf("the machine did not run again")
	}
	s.awaitState(leaving, stopped)
	if took := s.listInstances()[leaving].ChangedAt.Sub(asked); took < 300*time.Millisecond || took > time.Minute {
		t.Errorf("stopped after %s, want the latency of 400ms over both lives", took)
	}
}
