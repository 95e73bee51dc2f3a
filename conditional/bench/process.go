// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/trial"
)

// oneTrial is the argument of this program's own processes. They read a job and write its figures.
const oneTrial = "one-trial"

// grace is how long a trial that was asked to end may take to do so.
const grace = 30 * time.Second

// runTrial does a job in a process of its own, which does not outlive the call.
func runTrial(ctx context.Context, job trial.Job) (figures.Round, error) {
	ctx, cancel := context.WithTimeout(ctx, job.Limit()+grace)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, oneTrial)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	// The pipe stays open while this process lives: its end tells the other one to end too.
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe to trial %s: %w", job.Trial, err)
	}
	sent := make(chan error, 1)
	go func() { sent <- json.NewEncoder(in).Encode(job) }()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("trial %s did not succeed, its reason is above: %w", job.Trial, errors.Join(err, <-sent))
	}
	var round figures.Round
	if err := json.Unmarshal(out, &round); err != nil {
		return nil, fmt.Errorf("read the figures of trial %s: %w", job.Trial, err)
	}
	return round, nil
}

// beTrial does the job that comes in.
func beTrial(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var job trial.Job
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&job); err != nil {
		return fmt.Errorf("read the job (this argument is only for the program itself): %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel(errors.New("the bench itself has ended"))
	}()
	round, err := trial.Run(ctx, job)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(round); err != nil {
		return fmt.Errorf("hand over the figures: %w", err)
	}
	return nil
}
