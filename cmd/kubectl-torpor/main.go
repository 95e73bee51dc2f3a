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
	// The log messages of Kubernetes' libraries either come as errors as well, or are of no use to a user.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	os.Exit(torpor.Run(ctx, torpor.Streams{Out: os.Stdout, Err: os.Stderr}, completion.PluginArguments(os.Args)))
}
