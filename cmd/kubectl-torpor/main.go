// SPDX-License-Identifier: Apache-2.0

// Command kubectl-torpor is the plugin `kubectl torpor`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/torpor"
)

func main() {
	// Log messages of Kubernetes' libraries are either also returned as errors, or of no use to the user.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	os.Exit(torpor.Run(ctx, torpor.Streams{Out: os.Stdout, Err: os.Stderr}, completion.PluginArguments(os.Args)))
}
