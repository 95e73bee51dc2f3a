// SPDX-License-Identifier: Apache-2.0

// Package cloud is a simulated cloud that speaks the EC2 Query API on one machine.
//
// Its instances have EC2's states, responses and errors, and take real time to start and stop. Each instance may run a
// real command as its machine. The state of the cloud survives kill -9, because each change is written to the disk
// before the call is answered.
//
// Reading order: state.go (the transitions) → state_store.go (the file) → cloud.go (time and processes) → handler.go
// (one call) → actions.go → admin.go (the settings of benchmarks and tests).
package cloud

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
	"github.com/torpor-dev/torpor/local/cloud/machineprocess"
)

// Config is the configuration of a cloud.
type Config struct {
	// Dir is the folder of the durable state. It is created if it does not exist. Only one cloud at a time can use it.
	Dir string
	// StartLatency and StopLatency are how long an instance stays pending, and stopping or shutting-down.
	StartLatency, StopLatency time.Duration
	// PageSize is the largest number of reservations on one page of DescribeInstances; 0 means EC2's 1000.
	PageSize int
	// AllowCommands lets every caller of RunInstances run commands as this user; set AccessKeys with it.
	AllowCommands bool
	// AccessKeys are the accepted access key ids; if empty, all are accepted. Signatures are not verified.
	AccessKeys []string
	// Region is the region for which calls must be signed; empty means us-east-1.
	Region string
	// Network is the first half of every instance's loopback address; empty means 127.77. Two clouds whose machines
	// serve on the same port need two networks.
	Network string
	// RatePerSecond and Burst throttle the calls of each access key; a rate of 0 does not throttle.
	RatePerSecond float64
	Burst         int
	// EC2Limits throttles the calls of each access key, by kinds of calls, as EC2 throttles the calls of an account.
	EC2Limits bool
	// ReadLag is how old the data in responses to DescribeInstances is: a change becomes visible only after this time.
	ReadLag time.Duration
	// Log receives one line per state change of an instance, and errors; nil drops them.
	Log *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	const ec2PageSize = 1000
	var wrong []error
	if c.Dir == "" {
		wrong = append(wrong, errors.New("the folder for the cloud's state is missing: set Dir"))
	}
	if c.StartLatency < 0 || c.StopLatency < 0 || c.ReadLag < 0 {
		wrong = append(wrong, fmt.Errorf("latencies must not be negative, found start %s, stop %s and read lag %s", c.StartLatency, c.StopLatency, c.ReadLag))
	}
	if c.PageSize < 0 || c.PageSize > ec2PageSize {
		wrong = append(wrong, fmt.Errorf("a page holds 1 to %d reservations (0 for %d), found %d", ec2PageSize, ec2PageSize, c.PageSize))
	}
	if c.RatePerSecond < 0 || (c.RatePerSecond > 0 && c.Burst < 1) {
		wrong = append(wrong, fmt.Errorf("a rate must be positive and come with a burst of at least 1, found rate %g and burst %d", c.RatePerSecond, c.Burst))
	}
	if c.PageSize == 0 {
		c.PageSize = ec2PageSize
	}
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	if c.Network == "" {
		c.Network = "127.77"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(wrong...)
}

// Cloud is a running simulated cloud.
type Cloud struct {
	config  Config
	store   *stateStore
	starter *machineprocess.Starter
	// gracePeriod is how long Close waits between SIGTERM and SIGKILL, and again after SIGKILL.
	gracePeriod time.Duration
	wake        chan struct{}
	done        chan struct{}
	work        sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	state     *cloudState
	latencies powerLatencies
	processes map[string]*machineprocess.Process
	faults    []injectedFault
	calls     map[string]int
	// limiters throttle the calls of each access key, by kinds of calls.
	limiters map[string]*rate.Limiter
	// looks are the times of the next checks of instances, the earliest one first. Some entries may be outdated.
	looks dueLooks
	// listed records the time at which DescribeInstances first returned an instance in its current state.
	listed map[string]listedState
	// past contains earlier states of instances, as long as reads with a lag may return them.
	past map[string][]pastInstance
	// capacity limits the running instances of a type; a missing type is unlimited.
	capacity map[string]int
}

// New opens the cloud of a folder in the state that its previous process stored: running instances are started
// again, and transitions continue. The caller serves HTTPHandler on a loopback address and ends the cloud with
// Close.
func New(config Config) (*Cloud, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	store, err := openStore(config.Dir)
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		config: config, store: store, starter: machineprocess.NewStarter(), gracePeriod: 5 * time.Second,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		latencies: powerLatencies{Start: &config.StartLatency, Stop: &config.StopLatency},
		state:     newState(), processes: map[string]*machineprocess.Process{}, calls: map[string]int{}, limiters: map[string]*rate.Limiter{},
		past: map[string][]pastInstance{}, capacity: map[string]int{}, listed: map[string]listedState{},
	}
	if err := c.restoreMachines(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.work.Go(c.runTransitions)
	return c, nil
}

// Close ends all processes, and keeps the states of the instances. The next call of New for the folder starts the
// machines of running instances again.
func (c *Cloud) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	left := slices.Collect(maps.Values(c.processes))
	c.mu.Unlock()

	close(c.done)
	for _, p := range left {
		p.Terminate()
	}
	left = c.awaitGone(left)
	for _, p := range left {
		p.Kill()
	}
	var stays error
	if left = c.awaitGone(left); len(left) > 0 {
		stays = fmt.Errorf("%d killed machines did not end within %s", len(left), c.gracePeriod)
	}
	c.starter.Close()
	c.work.Wait()
	return errors.Join(stays, c.store.close())
}

func (c *Cloud) awaitGone(left []*machineprocess.Process) []*machineprocess.Process {
	ctx, cancel := context.WithTimeout(context.Background(), c.gracePeriod)
	defer cancel()
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		left = slices.DeleteFunc(left, (*machineprocess.Process).IsGone)
		if len(left) == 0 || ctx.Err() != nil {
			return left
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// recheckInterval is how soon a killed process group is checked again; the kernel does not report the end of the
// group's last member.
const recheckInterval = 10 * time.Millisecond

// restoreMachines ends the machines that the previous process of the cloud has left, and starts the machines of
// running instances.
func (c *Cloud) restoreMachines() error {
	known, err := c.store.loadState()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.gracePeriod)
	defer cancel()
	c.state = known
	for _, i := range known.Instances {
		if err := i.Process.KillOrphan(ctx, i.ID); err != nil {
			return fmt.Errorf("end the machine of %s left by the previous process of the cloud (pid %d): %w", i.ID, i.Process.PID, err)
		}
		i.Process = machineprocess.Identity{}
		if i.State == running {
			i = c.bootMachine(i, time.Now())
		}
		known.Instances[i.ID] = i
	}
	c.lookAtAll()
	return c.store.saveState(c.state)
}

// runTransitions performs due transitions until the cloud is closed.
func (c *Cloud) runTransitions() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-c.wake:
		case <-timer.C:
		}
		if again := c.advanceAll(time.Now()); again.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(again))
		}
	}
}

// wakeUp triggers another round of runTransitions now.
func (c *Cloud) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// dueLook is the time of the next check of an instance.
type dueLook struct {
	at time.Time
	id string
}

// dueLooks is a heap of checks, the earliest one first.
type dueLooks []dueLook

// Len implements heap.Interface.
func (d *dueLooks) Len() int { return len(*d) }

// Less implements heap.Interface.
func (d *dueLooks) Less(i, j int) bool { return (*d)[i].at.Before((*d)[j].at) }

// Swap implements heap.Interface.
func (d *dueLooks) Swap(i, j int) { (*d)[i], (*d)[j] = (*d)[j], (*d)[i] }

// Push implements heap.Interface.
func (d *dueLooks) Push(x any) {
	if look, ok := x.(dueLook); ok {
		*d = append(*d, look)
	}
}

// Pop implements heap.Interface.
func (d *dueLooks) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// lookAtAll schedules a check of every instance that has a due time. It is called when the cloud starts and after the
// faults are cleared.
func (c *Cloud) lookAtAll() {
	c.looks = nil
	for id, i := range c.state.Instances {
		if !i.Due.IsZero() {
			c.looks = append(c.looks, dueLook{i.Due, id})
		}
	}
	heap.Init(&c.looks)
}

// advanceAll performs all due transitions. It returns the time of the next check, or zero if no check is scheduled.
func (c *Cloud) advanceAll(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return time.Time{}
	}
	var change stateChange
	var again []dueLook
	for _, before := range c.takeDue(now) {
		if before.State == terminated {
			change.Forgotten = append(change.Forgotten, before.ID)
			continue
		}
		after, at := c.advanceInstance(before, now)
		if after.State != before.State {
			change.Instances = append(change.Instances, after)
		} else if !at.IsZero() {
			again = append(again, dueLook{at, before.ID})
		}
	}
	if len(change.Instances)+len(change.Forgotten) > 0 {
		c.saveTransitions(change, now)
	}
	c.actForGroups(now)
	for _, look := range again {
		heap.Push(&c.looks, look)
	}
	next := c.state.nextUpdateEnd()
	if len(c.looks) > 0 && (next.IsZero() || c.looks[0].at.Before(next)) {
		next = c.looks[0].at
	}
	return next
}

// takeDue returns the instances that are due, and the instances whose machines may have exited.
func (c *Cloud) takeDue(now time.Time) map[string]instance {
	due := map[string]instance{}
	for len(c.looks) > 0 && !c.looks[0].at.After(now) {
		look, _ := heap.Pop(&c.looks).(dueLook)
		// An entry may be outdated, because the latest change has added another entry.
		if i, ok := c.state.Instances[look.id]; ok && (i.State == running || !i.Due.IsZero() && !i.Due.After(now)) {
			due[i.ID] = i
		}
	}
	for id := range c.processes {
		if i := c.state.Instances[id]; i.State == running {
			due[id] = i
		}
	}
	return due
}

// saveTransitions saves transitions. A disk error does not undo them, because they have already happened. The next
// change then writes these transitions, too.
func (c *Cloud) saveTransitions(change stateChange, now time.Time) {
	if err := c.saveChange(change, now); err != nil {
		c.config.Log.Error("cannot write the state of the cloud to the disk", "error", err)
		c.applyChange(change, now)
	}
}

func (c *Cloud) saveChange(change stateChange, now time.Time) error {
	if err := c.store.saveChange(c.state, change); err != nil {
		return err
	}
	c.applyChange(change, now)
	return nil
}

func (c *Cloud) applyChange(change stateChange, now time.Time) {
	for _, i := range change.Instances {
		if before := c.state.Instances[i.ID].State; before != i.State {
			c.config.Log.Info("instance changed", "instance", i.ID, "from", string(before), "to", string(i.State))
		}
		c.keepPast(i.ID, now)
		if !i.Due.IsZero() {
			heap.Push(&c.looks, dueLook{i.Due, i.ID})
		}
	}
	for _, id := range change.Forgotten {
		delete(c.listed, id)
	}
	c.state.apply(change)
	c.wakeUp()
}

// listedState is a state that DescribeInstances has returned, and the time at which it first did.
type listedState struct {
	state powerState
	at    time.Time
}

func (c *Cloud) noteListed(i instance, now time.Time) {
	if c.listed[i.ID].state != i.State {
		c.listed[i.ID] = listedState{i.State, now}
	}
}

// pastInstance is an earlier state of an instance, and the time until which it was current. Without an id, the
// instance did not exist yet.
type pastInstance struct {
	instance
	until time.Time
}

// keepPast records the state of an instance before a change, for reads with a lag.
func (c *Cloud) keepPast(id string, now time.Time) {
	if c.config.ReadLag == 0 {
		return
	}
	visible := slices.DeleteFunc(c.past[id], func(p pastInstance) bool { return !p.until.After(now.Add(-c.config.ReadLag)) })
	c.past[id] = append(visible, pastInstance{c.state.Instances[id], now})
}

// readInstance returns an instance as DescribeInstances shows it. The second result is false if the instance is not
// shown yet.
func (c *Cloud) readInstance(id string, now time.Time) (instance, bool) {
	for _, p := range c.past[id] {
		if p.until.After(now.Add(-c.config.ReadLag)) {
			return p.instance, p.ID != ""
		}
	}
	i, ok := c.state.Instances[id]
	return i, ok
}

// advanceInstance performs a due transition. It returns the instance and the time of its next check. An event may
// trigger an earlier check.
func (c *Cloud) advanceInstance(i instance, now time.Time) (instance, time.Time) {
	switch {
	case i.State == running:
		return c.watchMachine(i, now)
	case i.Due.IsZero():
		return i, time.Time{}
	case now.Before(i.Due):
		return i, i.Due
	case c.isStuck(i):
		return i, time.Time{}
	case i.State == pending:
		return c.bootMachine(i.afterLatency(now), now), time.Time{}
	default:
		return c.haltMachine(i, now)
	}
}

func (c *Cloud) bootMachine(i instance, now time.Time) instance {
	if c.losesStart(i) {
		return i.stoppedUnasked(ec2query.ServerInsufficientInstanceCapacity, "Insufficient capacity to satisfy instance request", now)
	}
	if i.Command == nil {
		return i
	}
	p, err := c.starter.Start(i.processCommand())
	if err != nil {
		c.config.Log.Error("cannot start the machine", "instance", i.ID, "error", err)
		return i.stoppedUnasked(ec2query.ClientInternalError, "Client error on launch", now)
	}
	i.Process = p.Identity()
	c.processes[i.ID] = p
	// The exit of the machine triggers an immediate check.
	c.work.Go(func() {
		select {
		case <-p.Exited():
			c.wakeUp()
		case <-c.done:
		}
	})
	return i
}

// watchMachine detects a machine that has exited, and ends all processes that it has started.
func (c *Cloud) watchMachine(i instance, now time.Time) (instance, time.Time) {
	p := c.processes[i.ID]
	if p == nil {
		return i, time.Time{}
	}
	select {
	case <-p.Exited():
	default:
		return i, time.Time{}
	}
	// The processes that the machine has started are ended, too, which may take a moment.
	if !c.ensureEnded(i.ID) {
		return i, now.Add(recheckInterval)
	}
	return i.stoppedUnasked(ec2query.ClientInstanceInitiatedShutdown, "Instance initiated shutdown", now), time.Time{}
}

// haltMachine completes a stop or a termination once the latency has passed and the machine has really ended.
func (c *Cloud) haltMachine(i instance, now time.Time) (instance, time.Time) {
	if !c.ensureEnded(i.ID) {
		return i, now.Add(recheckInterval)
	}
	return i.afterLatency(now), time.Time{}
}

func (c *Cloud) ensureEnded(id string) bool {
	p := c.processes[id]
	if p == nil {
		return true
	}
	if !p.IsGone() {
		p.Kill()
		return false
	}
	delete(c.processes, id)
	return true
}

func (i instance) processCommand() machineprocess.Command {
	own := strings.NewReplacer("{{ip}}", i.PrivateIP, "{{id}}", i.ID, "{{dns}}", i.PrivateDNS)
	c := machineprocess.Command{Marker: i.ID, Log: own.Replace(i.Command.Log), Env: map[string]string{}}
	for _, arg := range i.Command.Argv {
		c.Argv = append(c.Argv, own.Replace(arg))
	}
	for name, value := range i.Command.Env {
		c.Env[name] = own.Replace(value)
	}
	return c
}
