// SPDX-License-Identifier: Apache-2.0

// Command bench measures the library conditional, and plain controller-runtime beside it, on a real API server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// What the program ends with.
const (
	exitDone        = 0
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	if len(args) == 1 && args[0] == oneTrial {
		err := beTrial(ctx, os.Stdin, os.Stdout)
		if ctx.Err() != nil {
			return exitInterrupted // The process above tells it.
		}
		return exitCode(ctx, err)
	}
	p, err := parse(args, os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err == nil {
		err = bench(ctx, p, os.Stdout)
	}
	return exitCode(ctx, err)
}

// exitCode tells a person what went wrong.
func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return exitDone
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
