// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

// Counts is what a process has asked of the API server, and complained about.
type Counts struct {
	Requests, Watches, Errors float64
}

// Since returns what was added after an earlier reading.
func (c Counts) Since(earlier Counts) Counts {
	return Counts{c.Requests - earlier.Requests, c.Watches - earlier.Watches, c.Errors - earlier.Errors}
}

// Counter counts requests and error log lines. Its zero value is ready.
type Counter struct{ requests, watches, errors atomic.Int64 }

// Read returns the counts so far.
func (c *Counter) Read() Counts {
	return Counts{float64(c.requests.Load()), float64(c.watches.Load()), float64(c.errors.Load())}
}

// Config returns cfg with its requests counted, and without a limit of its own, as controller-runtime's GetConfig does.
func (c *Counter) Config(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = -1, -1
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { return counted{base, c} })
	return cfg
}

type counted struct {
	base http.RoundTripper
	to   *Counter
}

// RoundTrip counts the request, a watch apart from the others.
func (t counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		t.to.watches.Add(1)
	} else {
		t.to.requests.Add(1)
	}
	return t.base.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below.
func (t counted) WrappedRoundTripper() http.RoundTripper { return t.base }

// Logger drops everything but counts errors, those that client-go reports to apimachinery too.
func (c *Counter) Logger() logr.Logger {
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{
		func(context.Context, error, string, ...any) { c.errors.Add(1) },
	}
	return logr.New(sink{c})
}

type sink struct{ to *Counter }

func (sink) Init(logr.RuntimeInfo)            {}
func (sink) Enabled(int) bool                 { return true }
func (sink) Info(int, string, ...any)         {}
func (s sink) Error(error, string, ...any)    { s.to.errors.Add(1) }
func (s sink) WithValues(...any) logr.LogSink { return s }
func (s sink) WithName(string) logr.LogSink   { return s }
