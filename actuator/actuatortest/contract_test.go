// SPDX-License-Identifier: Apache-2.0

package actuatortest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

// flawVariable is the environment variable with the flaw of the toy actuator in a child process.
const flawVariable = "ACTUATORTEST_FLAW"

type toyFlaw string

// flawsWithRows maps each flaw to the name of a contract test that must find it.
func flawsWithRows() map[toyFlaw]string {
	return map[toyFlaw]string{
		"forgets pages":                  "observe finds all machines on more than one page",
		"is unordered":                   "sorted by id",
		"matches prefixes":               "machines of another infraID are invisible",
		"accepts an empty infraID":       "an empty infraID is refused",
		"gives up":                       "a machine without capacity is named",
		"stops everything":               "stop stops only the named machines",
		"stops once":                     "stop is idempotent",
		"starts once":                    "start is idempotent",
		"stops clusters partly":          "a machine that can never be stopped keeps the others running",
		"ignores stop":                   "no machine is running or starting after a stop",
		"hides unknown machines":         "an unknown machine is not found",
		"ignores credentials":            "wrong credentials are reported as invalid",
		"ignores the context":            "a cancelled context returns",
		"leaks secrets":                  "every class of error is reported",
		"counts errors":                  "every class of error is reported",
		"mixes up classes":               "every class of error is reported",
		"keeps a stopped machine billed": "a stop also stops a machine that its guest has shut down",
		"hides groups":                   "machines in a group are reported",
	}
}

func TestContractPasses(t *testing.T) {
	cloud := &toyCloud{machines: map[string]*toyMachine{}, flaw: toyFlaw(os.Getenv(flawVariable))}
	Run(t, func(*testing.T) Cloud {
		cloud.clusters++
		return &toyCluster{toyCloud: cloud, infraID: "toy" + strings.Repeat("-x", cloud.clusters)}
	})
}

// TestContractFindsFlaws runs the contract in a child process for each flaw, because a contract that cannot fail
// would prove nothing.
func TestContractFindsFlaws(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for flaw, row := range flawsWithRows() {
		t.Run("an actuator that "+string(flaw), func(t *testing.T) {
			child := exec.CommandContext(t.Context(), self, "-test.run=^TestContractPasses$", "-test.v", "-test.timeout=5m")
			child.Env = append(os.Environ(), flawVariable+"="+string(flaw))
			out, err := child.CombinedOutput()
			if _, failed := errors.AsType[*exec.ExitError](err); !failed {
				t.Fatalf("the contract passes, want it to fail: error %v", err)
			}
			underscored := strings.ReplaceAll(row, " ", "_")
			if !slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
				return strings.Contains(line, "--- FAIL") && strings.Contains(line, underscored)
			}) {
				t.Errorf("the row %q passes, want it to fail:\n%s", row, out)
			}
		})
	}
}

// toyCloud is a cloud in memory. A machine reaches the requested state only after some observations.
type toyCloud struct {
	mu       sync.Mutex
	flaw     toyFlaw
	clusters int
	made     int
	calls    int
	machines map[string]*toyMachine
	faults   []toyFault
}

type toyMachine struct {
	infraID string
	state   actuator.MachineState
	// isHeld reports whether a stopped machine still occupies billed capacity.
	isHeld bool
	group  string
	// after is the number of observations that the transition still takes.
	after int
}

type toyFault struct {
	class actuator.ErrorClass
	op    Operation
	ids   []string
}

type toyCluster struct {
	*toyCloud
	infraID string
}

func (c *toyCluster) Actuator() actuator.Actuator { return c.toyCloud }

func (c *toyCluster) Target() actuator.Target {
	return actuator.Target{InfraID: c.infraID, Region: "here", Credentials: map[string][]byte{"password": []byte("open sesame")}}
}

func (c *toyCluster) Create(_ *testing.T, n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for range n {
		c.made++
		id := fmt.Sprintf("m-%07d", c.made*11)
		ids = append(ids, id)
		c.machines[id] = &toyMachine{infraID: c.infraID, state: actuator.Running}
	}
	return ids
}

func (c *toyCluster) Settle(*testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.machines {
		m.after = 0
		m.pass()
	}
}

func (c *toyCluster) ShutDown(_ *testing.T, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machines[id].state, c.machines[id].isHeld = actuator.Stopped, true
}

func (c *toyCluster) JoinGroup(_ *testing.T, id, group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machines[id].group = group
}

func (c *toyCluster) Fail(t *testing.T, class actuator.ErrorClass, op Operation, ids ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, toyFault{class, op, ids})
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.faults = nil
	})
	return true
}

// pass advances the machine's transition by one observation.
func (m *toyMachine) pass() {
	if m.after > 0 {
		m.after--
		return
	}
	switch m.state {
	case actuator.Starting:
		m.state = actuator.Running
	case actuator.Stopping:
		m.state = actuator.Stopped
	case actuator.Running, actuator.Stopped:
	}
}

func (c *toyCloud) Platform() string { return "toy" }

func (c *toyCloud) Observe(ctx context.Context, t actuator.Target) ([]actuator.Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(ctx, t, Observe); err != nil {
		return nil, err
	}
	if t.InfraID == "" && c.flaw != "accepts an empty infraID" {
		return nil, errors.New("no infraID")
	}
	var found []actuator.Machine
	for _, id := range slices.Sorted(maps.Keys(c.machines)) {
		m := c.machines[id]
		if m.infraID == t.InfraID || (c.flaw == "matches prefixes" && strings.HasPrefix(m.infraID, t.InfraID)) {
			m.pass()
			machine := actuator.Machine{ID: id, State: m.state, HoldsCapacity: m.isHeld}
			if c.flaw != "hides groups" {
				machine.Group = m.group
			}
			found = append(found, machine)
		}
	}
	if c.flaw == "forgets pages" {
		found = found[:min(10, len(found))]
	}
	if c.flaw == "is unordered" {
		slices.Reverse(found)
	}
	return found, nil
}

func (c *toyCloud) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	if c.flaw == "stops everything" {
		all, err := c.Observe(ctx, t)
		if err != nil {
			return err
		}
		ids = nil
		for _, m := range all {
			ids = append(ids, m.ID)
		}
	}
	if c.flaw == "ignores stop" {
		return nil
	}
	return c.power(ctx, t, Stop, ids, actuator.Running, actuator.Stopping)
}

func (c *toyCloud) Start(ctx context.Context, t actuator.Target, ids []string) error {
	return c.power(ctx, t, Start, ids, actuator.Stopped, actuator.Starting)
}

func (c *toyCloud) power(ctx context.Context, t actuator.Target, op Operation, ids []string, from, to actuator.MachineState) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(ctx, t, op); err != nil {
		return err
	}
	var refused []error
	for _, id := range ids {
		if err := c.fault(op, id); op == Stop && err != nil && err.Class == actuator.Other && c.flaw != "stops clusters partly" {
			return err
		}
	}
	for _, id := range ids {
		err := c.move(op, id, from, to)
		if err != nil && c.flaw == "gives up" {
			return err
		}
		refused = append(refused, err)
	}
	return errors.Join(refused...)
}

func (c *toyCloud) move(op Operation, id string, from, to actuator.MachineState) error {
	if err := c.fault(op, id); err != nil {
		return err
	}
	const steps = 3
	m, ok := c.machines[id]
	once := (c.flaw == "stops once" && op == Stop) || (c.flaw == "starts once" && op == Start)
	switch {
	case !ok && c.flaw == "hides unknown machines":
	case !ok:
		return &actuator.Error{Class: actuator.NotFound, Message: id}
	case m.state == from, op == Stop && m.isHeld && c.flaw != "keeps a stopped machine billed":
		m.state, m.after, m.isHeld = to, steps, false
	case once, op == Stop && m.state == actuator.Starting, op == Start && m.state == actuator.Stopping:
		return &actuator.Error{Class: actuator.WrongState, Message: id}
	}
	return nil
}

// admit returns the error of a call that fails for all machines.
func (c *toyCloud) admit(ctx context.Context, t actuator.Target, op Operation) error {
	password := string(t.Credentials["password"])
	c.calls++
	switch {
	case ctx.Err() != nil && c.flaw != "ignores the context":
		return ctx.Err()
	case password == "":
		return &actuator.Error{Class: actuator.CredentialsMissing, Message: "password"}
	case password != "open sesame" && c.flaw != "ignores credentials":
		return &actuator.Error{Class: actuator.CredentialsInvalid, Message: "password"}
	}
	err := c.fault(op, "")
	if err != nil && c.flaw == "leaks secrets" {
		err.Message += password
	}
	if err != nil && c.flaw == "counts errors" {
		err.Message += fmt.Sprint(c.calls)
	}
	if err == nil {
		return nil
	}
	return err
}

// fault returns the fault of all calls, or the fault of calls that name the machine.
func (c *toyCloud) fault(op Operation, id string) *actuator.Error {
	for _, f := range c.faults {
		if f.op == op && (len(f.ids) == 0 || slices.Contains(f.ids, id)) {
			if c.flaw == "mixes up classes" {
				f.class = actuator.Other
			}
			return &actuator.Error{Class: f.class, Message: cmp.Or(id, "all")}
		}
	}
	return nil
}
