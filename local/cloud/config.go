// SPDX-License-Identifier: Apache-2.0

// Package cloud is a simulated cloud that speaks the EC2 Query API on one machine.
//
// Its instances have EC2's states, answers and errors, take real time to start and stop, and may each carry a real
// command as their machine. What it knows survives kill -9: one JSON file is written before each answer.
//
// Reading order: state.go (what may follow what) → machine.go (time and processes) → handler.go (one call) →
// actions_*.go → faults.go and admin.go (what benchmarks and tests turn).
package cloud

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/torpor-dev/torpor/local/cloud/process"
)

// Config is what a cloud is started with.
type Config struct {
	// Dir is the folder of the durable state; it is created. One cloud at a time can use it.
	Dir string
	// StartLatency and StopLatency are how long an instance stays pending, and stopping or shutting-down.
	StartLatency, StopLatency time.Duration
	// PageSize is the largest number of reservations on one page of DescribeInstances; 0 means EC2's 1000.
	PageSize int
	// AllowCommands lets every caller of RunInstances run commands as this user; set AccessKeys with it.
	AllowCommands bool
	// AccessKeys are the access key ids that may call; empty means any. Signatures are not verified.
	AccessKeys []string
	// Region is the region calls must be signed for; empty means us-east-1.
	Region string
	// Network is the first half of every instance's loopback address; empty means 127.77. Two clouds whose machines
	// serve on the same port need two networks.
	Network string
	// RatePerSecond and Burst throttle the calls of each access key; a rate of 0 does not throttle.
	RatePerSecond float64
	Burst         int
	// Log gets one line per change of an instance; nil drops them.
	Log *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	const ec2PageSize = 1000
	var wrong []error
	if c.Dir == "" {
		wrong = append(wrong, errors.New("the folder of the cloud's state is not set: set Dir"))
	}
	if c.StartLatency < 0 || c.StopLatency < 0 {
		wrong = append(wrong, fmt.Errorf("latencies must not be negative, found start %s and stop %s", c.StartLatency, c.StopLatency))
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
	starter *process.Starter
	// gracePeriod is how long Close waits between asking and killing, and again after killing.
	gracePeriod time.Duration
	wake        chan struct{}
	done        chan struct{}
	work        sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	state     cloudState
	latencies powerLatencies
	processes map[string]*process.Process
	faults    []injectedFault
	calls     map[string]int
	// limiters throttle the calls of each access key.
	limiters map[string]*rate.Limiter
}

// New opens the cloud of a folder as an earlier life left it: what was running runs again, what was changing goes on.
// The caller serves Handler on a loopback address and ends the cloud with Close.
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
		config: config, store: store, starter: process.NewStarter(), gracePeriod: 5 * time.Second,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		latencies: powerLatencies{Start: &config.StartLatency, Stop: &config.StopLatency},
		processes: map[string]*process.Process{}, calls: map[string]int{}, limiters: map[string]*rate.Limiter{},
	}
	if err := c.restoreMachines(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.work.Go(c.runTransitions)
	return c, nil
}

// Close ends all processes as a power cut would: what was running is started again by the next New on the folder.
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
		stays = fmt.Errorf("%d machines still run %s after they were killed", len(left), c.gracePeriod)
	}
	c.starter.Close()
	c.work.Wait()
	return errors.Join(stays, c.store.close())
}

// awaitGone returns those that are not gone after the grace.
func (c *Cloud) awaitGone(left []*process.Process) []*process.Process {
	ctx, cancel := context.WithTimeout(context.Background(), c.gracePeriod)
	defer cancel()
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		left = slices.DeleteFunc(left, (*process.Process).IsGone)
		if len(left) == 0 || ctx.Err() != nil {
			return left
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
