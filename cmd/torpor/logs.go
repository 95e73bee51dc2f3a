// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/internal/cli/exit"
)

// logFlags holds the logging flags of a server.
type logFlags struct {
	level, format string
	isVerbose     bool
}

func (l *logFlags) add(f *pflag.FlagSet) {
	f.StringVar(&l.level, "log-level", "info", "lowest level that is logged: debug, info, warn or error")
	f.StringVar(&l.format, "log-format", "json", "format of the log: json or text")
	f.BoolVarP(&l.isVerbose, "verbose", "v", false, "same as --log-level=debug")
}

// buildLogger returns a logger as the flags define. Kubernetes' libraries and the standard library also use this
// logger, so that all lines have the same format.
func (l *logFlags) buildLogger(logs io.Writer) (*slog.Logger, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, isKnown := levels[l.level]
	if !isKnown {
		return nil, exit.WrongUsage("--log-level: expected debug, info, warn or error, found %q", l.level)
	}
	if l.isVerbose {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch l.format {
	case "json":
		handler = slog.NewJSONHandler(logs, options)
	case "text":
		handler = slog.NewTextHandler(logs, options)
	default:
		return nil, exit.WrongUsage("--log-format: expected json or text, found %q", l.format)
	}
	if level > slog.LevelDebug {
		handler = quietHandler{handler}
	}
	logger := slog.New(handler)
	klog.SetSlogLogger(logger)
	slog.SetDefault(logger)
	log.SetFlags(0) // The logger adds the time to each line.
	return logger, nil
}

// discardLibraryLogs discards log messages of Kubernetes' libraries, for commands whose output is complete without
// them. Otherwise controller-runtime would print a stack trace after 30 seconds, because no logger is set.
func discardLibraryLogs() {
	klog.SetLogger(logr.Discard())
	crlog.SetLogger(logr.Discard())
}

// quietHandler drops the messages that controller-runtime logs when a controller or a watch starts: several lines
// for each of dozens of kinds.
type quietHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case "Starting EventSource", "Starting Controller", "Starting workers":
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name)}
}
