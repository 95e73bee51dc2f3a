// SPDX-License-Identifier: Apache-2.0

// Command bench measures the library conditional, and plain controller-runtime beside it, on a real API server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// The exit codes, which the usage explains.
const (
	exitMeasured    = 0
	exitFailed      = 1
	exitUsage       = 2
	exitMissed      = 3
	exitInterrupted = 130
)

var (
	errMissed = errors.New("a target was missed, see the table; without --strict that is no error")
	errUsage  = errors.New("see bench --help")
	errLeft   = errors.New("kube-apiserver or etcd may still run: end what `pgrep -a etcd` and `pgrep -a kube-apiserver` show of this run")
)

const (
	// trialArgument makes this program a child process that runs the one trial described on its standard input.
	trialArgument = "one-trial"
	// childGrace is how long a child that was asked to end may take to do so.
	childGrace = 30 * time.Second
)

// trialJob is what a child process is asked to measure.
type trialJob struct {
	Trial      string
	Sizes      trialSizes
	Kubeconfig []byte
	BenchStart time.Time
}

func (j trialJob) timeout() time.Duration {
	return time.Hour + j.Sizes.DormantTime + j.Sizes.PlainDormantTime
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	if len(args) == 1 && args[0] == trialArgument {
		err := runChild(ctx, os.Stdin, os.Stdout)
		if ctx.Err() != nil {
			return exitInterrupted // The parent prints the reason.
		}
		return exitCode(ctx, err)
	}
	o, err := parseOptions(args, os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitMeasured
	}
	if err == nil {
		err = runBench(ctx, o, os.Stdout)
	}
	return exitCode(ctx, err)
}

// exitCode prints an error for the person at the terminal and returns its exit code.
func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return exitMeasured
	case ctx.Err() != nil && !errors.Is(err, errLeft):
		fmt.Fprintln(os.Stderr, "interrupted: nothing was written and nothing is left running")
		return exitInterrupted
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errMissed):
		return exitMissed
	}
	return exitFailed
}

// runBench runs the wanted trials, prints the table and writes the figures.
func runBench(ctx context.Context, o benchOptions, out io.Writer) error {
	start, measured := time.Now(), allFigures{}
	progress := &progressLog{name: "bench", start: start}
	ctrllog.SetLogger(logr.Discard()) // envtest logs by this one, and complains when there is none.
	measured.add(machineFigures("before"))
	for n := range o.rounds {
		for _, t := range allTrials() {
			// A trial that measures a span of time shows nothing new in a second round.
			if !slices.Contains(o.only, t.topic()) || t.measuresTime && n > 0 {
				continue
			}
			progress.printf("round %d of %d: %s", n+1, o.rounds, t.name)
			r, err := runIsolated(ctx, trialJob{Trial: t.name, Sizes: o.sizes, BenchStart: start})
			if err != nil {
				return err
			}
			measured.add(r)
		}
	}
	measured.add(machineFigures("after"))
	return report(o, measured, start, out)
}

func report(o benchOptions, measured allFigures, start time.Time, out io.Writer) error {
	flat, rows := measured.flatten(), tableRows(o.sizes)
	fmt.Fprintln(out)
	if err := printTable(out, rows, flat); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%.0f cores, load average %.2f before and %.2f after; medians of %d rounds, maxima of all\n",
		flat["cores"], flat["load_average_before"], flat["load_average_after"], o.rounds)
	if err := measured.save(o.out); err != nil {
		return err
	}
	fmt.Fprintf(out, "written to %s after %s\n", o.out, time.Since(start).Round(time.Second))
	missed := missedRows(rows, flat)
	for _, what := range missed {
		fmt.Fprintf(out, "missed: %s\n", what)
	}
	if len(missed) > 0 && o.strict {
		return errMissed
	}
	return nil
}

// runIsolated runs a trial with an API server and a process of its own, so that what it holds and asks is its own.
func runIsolated(ctx context.Context, job trialJob) (_ roundFigures, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	server, err := startAPIServer()
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopErr := server.Stop(); stopErr != nil {
			err = errors.Join(err, fmt.Errorf("stop the API server: %w", stopErr), errLeft)
		}
	}()
	job.Kubeconfig = server.KubeConfig
	ctx, cancel := context.WithTimeout(ctx, job.timeout()+childGrace)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	child := exec.CommandContext(ctx, self, trialArgument)
	child.Stderr, child.WaitDelay = os.Stderr, childGrace
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	// The pipe stays open while this process lives: the child ends when it is closed.
	in, err := child.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe to trial %s: %w", job.Trial, err)
	}
	sent := make(chan error, 1)
	go func() { sent <- json.NewEncoder(in).Encode(job) }()
	out, err := child.Output()
	if err != nil {
		return nil, fmt.Errorf("trial %s did not succeed, its reason is above: %w", job.Trial, errors.Join(err, <-sent))
	}
	var r roundFigures
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("read the figures of trial %s: %w", job.Trial, err)
	}
	return r, nil
}

// runChild runs the trial that comes in.
func runChild(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var job trialJob
	if err := json.NewDecoder(in).Decode(&job); err != nil {
		return fmt.Errorf("read the job (this argument is only for the program itself): %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel(errors.New("the bench itself has ended"))
	}()
	r, err := runTrial(ctx, job)
	if err != nil {
		return fmt.Errorf("trial %s: %w", job.Trial, err)
	}
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return fmt.Errorf("hand over the figures: %w", err)
	}
	return nil
}

// progressLog writes lines with the time since the start of the bench to standard error.
type progressLog struct {
	name     string
	start    time.Time
	lastLine time.Time
}

func (p *progressLog) printf(format string, args ...any) {
	p.lastLine = time.Now()
	fmt.Fprintf(os.Stderr, "[%4.0fs] %s: %s\n", time.Since(p.start).Seconds(), p.name, fmt.Sprintf(format, args...))
}

// count writes a line when there was none for two seconds.
func (p *progressLog) count(what string, done, total int) {
	if time.Since(p.lastLine) >= 2*time.Second {
		p.printf("%s: %d of %d", what, done, total)
	}
}
