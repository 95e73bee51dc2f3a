// SPDX-License-Identifier: Apache-2.0

// Command torpor is the off switch for Kubernetes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // The image contains no time zones.

	_ "golang.org/x/crypto/x509roots/fallback" // The image contains no certificate authorities.

	"github.com/torpor-dev/torpor/internal/cli/exit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	err := limitMemory(os.Getenv)
	if err == nil {
		err = rootCommand(os.Stderr, os.Getenv).ExecuteContext(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(int(exit.CodeOf(err)))
	}
}
