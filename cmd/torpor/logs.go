// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"log"
	"log/slog"

	"k8s.io/klog/v2"
)

// newLogger logs as JSON, and debug messages too if verbose. What Kubernetes' libraries and the standard library log by
// themselves goes the same way, because a collector reads every line.
func newLogger(logs io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(logger)
	slog.SetDefault(logger)
	log.SetFlags(0) // The line has its time already.
	return logger
}
