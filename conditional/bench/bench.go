// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/terminal"
	"github.com/torpor-dev/torpor/conditional/bench/trial"
	"github.com/torpor-dev/torpor/conditional/bench/world"
)

// bench measures what is planned, prints the table and writes the figures.
func bench(ctx context.Context, p plan, out io.Writer) error {
	b := &supervisor{plan: p, began: time.Now(), measured: figures.Figures{}}
	b.progress = terminal.New(os.Stderr, "bench", b.began)
	ctrllog.SetLogger(logr.Discard()) // Of envtest; it wants one.
	b.machine("before")
	for round := range p.rounds {
		for _, t := range trial.All() {
			if !slices.Contains(p.only, t.Topic()) || t.Long && round > 0 {
				continue
			}
			b.progress.Say("round %d of %d: %s", round+1, p.rounds, t.Name)
			if err := b.measure(ctx, t); err != nil {
				return err
			}
		}
	}
	b.machine("after")
	return b.report(out)
}

// supervisor runs each trial in a process of its own.
type supervisor struct {
	plan     plan
	began    time.Time
	measured figures.Figures
	progress *terminal.Progress
}

// measure gives one trial an API server of its own, which ends with it.
func (b *supervisor) measure(ctx context.Context, t trial.Trial) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	server, err := world.StartServer()
	if err != nil {
		return err
	}
	defer func() {
		if broken := server.Stop(); broken != nil {
			err = errors.Join(err, broken, errLeft)
		}
	}()
	job := trial.Job{Trial: t.Name, Sizes: b.plan.sizes, Kubeconfig: server.Kubeconfig, Began: b.began}
	round, err := runTrial(ctx, job)
	if err != nil {
		return err
	}
	b.measured.Add(round)
	return nil
}

// machine adds how busy the machine is.
func (b *supervisor) machine(when string) {
	r := figures.Round{"cores": float64(runtime.NumCPU())}
	if load, ok := world.Load(); ok {
		r["load_average_"+when] = load
	}
	b.measured.Add(r)
}

func (b *supervisor) report(out io.Writer) error {
	flat := b.measured.Flat()
	rows := targets(b.plan.sizes)
	fmt.Fprintln(out)
	if err := figures.Print(out, rows, flat); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%.0f cores, load average %.2f before and %.2f after; medians of %d rounds, maxima of all\n",
		flat["cores"], flat["load_average_before"], flat["load_average_after"], b.plan.rounds)
	if err := b.measured.Save(b.plan.out); err != nil {
		return err
	}
	fmt.Fprintf(out, "written to %s after %s\n", b.plan.out, time.Since(b.began).Round(time.Second))
	missed := figures.Missed(rows, flat)
	for _, what := range missed {
		fmt.Fprintf(out, "missed: %s\n", what)
	}
	if len(missed) > 0 && b.plan.strict {
		return errMissed
	}
	return nil
}
