// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// machineScript simulates a machine, which has power while the script runs. The machine's system takes half a
	// second to shut down once the file off exists.
	machineScript = `#!/bin/sh
rm -f "$0.off"
touch "$0.on"
while kill -0 $PPID 2>/dev/null && [ ! -e "$0.off" ]; do sleep 0.05; done
sleep 0.5
rm -f "$0.on"
`
	// simulatorTimeout is the timeout of tests with a silent controller.
	simulatorTimeout   = 6 * time.Second
	controllerCommands = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n"

	// Bytes that a virtual machine and the simulator exchange (QEMU's hw/ipmi/ipmi_bmc_extern.c).
	vmEndOfCommand, vmVersion, vmCapabilities, vmShutDown, vmPowerOff = 0xa1, 0xff, 0x08, 0x09, 0x03
)

// simulatorCluster is a cluster with machines in OpenIPMI's simulator, which runs as one process per machine.
type simulatorCluster struct {
	tree   string
	name   string
	listed []actuator.ListedMachine
	a      *Actuator
	// machines counts the machines of all clusters.
	machines  *int
	processes map[string]*testenv.Process
}

func newSimulator(t *testing.T) func() *simulatorCluster {
	t.Helper()
	tree := os.Getenv("TORPOR_BMC")
	if _, err := os.Stat(filepath.Join(tree, "usr/bin/ipmi_sim")); tree == "" || err != nil {
		t.Skipf("no real implementation of IPMI: TORPOR_BMC is %q and names no folder with usr/bin/ipmi_sim: run make e2e-clouds on Debian", tree)
	}
	clusters, machines, a := 0, 0, New(Options{VisitTimeout: simulatorTimeout, resend: 300 * time.Millisecond})
	return func() *simulatorCluster {
		clusters++
		return &simulatorCluster{tree: tree, name: fmt.Sprintf("sim%d", clusters), a: a, machines: &machines, processes: map[string]*testenv.Process{}}
	}
}

func (c *simulatorCluster) Actuator() actuator.Actuator { return c.a }

func (c *simulatorCluster) Target() actuator.Target {
	return actuator.Target{InfraID: c.name, Machines: c.listed, Credentials: map[string][]byte{usernameKey: []byte(goodUser), passwordKey: []byte(goodPassword)}}
}

// TakesOrdersOneByOne implements actuatortest.OneByOneCloud.
func (*simulatorCluster) TakesOrdersOneByOne() {}

// Create starts simulators. Their machines have power at once.
func (c *simulatorCluster) Create(t *testing.T, n int) []string {
	t.Helper()
	var ids []string
	for range n {
		*c.machines++
		id := fmt.Sprintf("%s-%03d", c.name, *c.machines)
		c.listed = append(c.listed, actuator.ListedMachine{Name: id, Address: "ipmi://" + c.startSimulator(t, id)})
		ids = append(ids, id)
	}
	c.await(t, actuator.Running, ids...)
	return ids
}

func (c *simulatorCluster) startSimulator(t *testing.T, id string) (address string) {
	t.Helper()
	dir := t.TempDir()
	script, lan, serial := filepath.Join(dir, "machine"), testenv.FreeAddress(t), testenv.FreeAddress(t)
	levels := ""
	for _, level := range []string{"callback", "user", "operator", "admin"} {
		levels += "allowed_auths_" + level + " none md2 md5 straight\n"
	}
	settings := fmt.Sprintf("name \"m\"\nset_working_mc 0x20\nstartlan 1\naddr %s\npriv_limit admin\n%sguid a123456789abcdefa123456789abcdef\nendlan\n"+
		"serial 15 %s codec VM\nstartcmd %q\nstartnow true\npoweroff_wait 60\nkill_wait 20\nuser 2 true %q %q admin 10 none md2 md5 straight\n",
		strings.Replace(lan, ":", " ", 1), levels, strings.Replace(serial, ":", " ", 1), script, goodUser, goodPassword)
	for name, content := range map[string]string{"machine": machineScript, "lan.conf": settings, "commands": controllerCommands} {
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700))
	}
	libraries, err := filepath.Glob(filepath.Join(c.tree, "usr/lib/*-linux-gnu"))
	testenv.ExpectNoError(t, err)
	c.processes[id] = testenv.StartProcess(t, filepath.Join(c.tree, "usr/bin/ipmi_sim"), []string{
		"-n", "-c", filepath.Join(dir, "lan.conf"), "-f", filepath.Join(dir, "commands"), "-s", dir,
	}, []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")})
	stop := testenv.RunInBackground(t, "the machine's system", func(ctx context.Context) error { return runSystem(ctx, serial, script) })
	t.Cleanup(stop)
	return lan
}

// runSystem simulates the system of a machine. It receives the controller's signals while the machine has power.
func runSystem(ctx context.Context, serial, script string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var conn net.Conn
	for {
		select {
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close()
			}
			return nil
		case <-tick.C:
		}
		_, err := os.Stat(script + ".on")
		switch isOn := err == nil; {
		case isOn && conn == nil:
			if conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", serial); err != nil {
				conn = nil // The simulator does not listen yet.
				continue
			}
			_, _ = conn.Write([]byte{vmVersion, 1, vmEndOfCommand, vmCapabilities, 0x3f, vmEndOfCommand})
			go hearButtons(conn, script+".off")
		case !isOn && conn != nil:
			_ = conn.Close()
			conn = nil
		}
	}
}

// hearButtons turns the machine off when its controller sends the signal.
func hearButtons(conn net.Conn, file string) {
	heard := make([]byte, 256)
	for {
		n, err := conn.Read(heard)
		if err != nil {
			return
		}
		if slices.Contains(heard[:n], vmShutDown) || slices.Contains(heard[:n], vmPowerOff) {
			_ = os.WriteFile(file, nil, 0o600)
		}
	}
}

// await waits until the controllers report the state of the machines.
func (c *simulatorCluster) await(t *testing.T, want actuator.MachineState, ids ...string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("machines are %s", want), func() error {
		machines, err := c.a.Observe(t.Context(), c.Target())
		for _, m := range machines {
			if slices.Contains(ids, m.ID) && m.State != want {
				return fmt.Errorf("machine %s is %s: %s", m.ID, m.State, m.Note)
			}
		}
		return err
	})
}

// Settle implements actuatortest.Cloud.
func (c *simulatorCluster) Settle(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "no machine is about to stop", func() error {
		machines, err := c.a.Observe(t.Context(), c.Target())
		for _, m := range machines {
			if m.State == actuator.Starting || m.State == actuator.Stopping {
				return fmt.Errorf("machine %s is %s: %s", m.ID, m.State, m.Note)
			}
		}
		return err
	})
}

// Fail freezes controllers, so they do not answer at all.
func (c *simulatorCluster) Fail(t *testing.T, class actuator.ErrorClass, _ actuatortest.Operation, ids ...string) bool {
	t.Helper()
	if class != actuator.Unreachable {
		return false
	}
	for id, process := range c.processes {
		if len(ids) == 0 || slices.Contains(ids, id) {
			testenv.ExpectNoError(t, syscall.Kill(process.PID(), syscall.SIGSTOP))
			t.Cleanup(func() { testenv.ExpectNoError(t, syscall.Kill(process.PID(), syscall.SIGCONT)) })
		}
	}
	return true
}

func TestContractAtARealIPMI(t *testing.T) {
	newCluster := newSimulator(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return newCluster() })
}
