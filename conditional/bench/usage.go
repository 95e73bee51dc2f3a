// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// memoryUsage is what this process holds.
type memoryUsage struct{ goroutines, heap, stack float64 }

// settledUsage waits until the number of goroutines stays the same for 200 ms, and returns what is then held, without
// garbage.
func settledUsage(ctx context.Context) memoryUsage {
	const interval, stableChecks, maxChecks = 10 * time.Millisecond, 20, 500
	for last, stable, checks := 0, 0, 0; stable < stableChecks && checks < maxChecks; checks++ {
		stable++
		if now := runtime.NumGoroutine(); now != last {
			last, stable = now, 0
		}
		pause(ctx, interval)
	}
	var stats runtime.MemStats
	heap := math.Inf(1)
	for range 3 { // A sync.Pool gives up its content only after the second collection.
		runtime.GC()
		runtime.ReadMemStats(&stats)
		heap = min(heap, float64(stats.HeapAlloc))
	}
	return memoryUsage{goroutines: float64(runtime.NumGoroutine()), heap: heap, stack: float64(stats.StackInuse)}
}

// addUsage writes what each of n groups or controllers costs beyond an earlier measurement.
func (r roundFigures) addUsage(ctx context.Context, before memoryUsage, n int, format string) {
	held := settledUsage(ctx)
	r[fmt.Sprintf(format, "goroutines")] = (held.goroutines - before.goroutines) / float64(n)
	r[fmt.Sprintf(format, "heap_bytes")] = (held.heap - before.heap) / float64(n)
	r[fmt.Sprintf(format, "stack_bytes")] = (held.stack - before.stack) / float64(n)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		check(context.Cause(ctx), "pause")
	}
}

// leakSamples is what the process holds after some cycles.
type leakSamples struct{ cycles, goroutines, heap, series []float64 }

func (l *leakSamples) takeSample(ctx context.Context, cycle int) {
	families, err := metrics.Registry.Gather()
	check(err, "gather metrics")
	series := 0
	for _, f := range families {
		series += len(f.GetMetric())
	}
	held := settledUsage(ctx)
	l.cycles, l.series = append(l.cycles, float64(cycle)), append(l.series, float64(series))
	l.goroutines, l.heap = append(l.goroutines, held.goroutines), append(l.heap, held.heap)
}

// addTo writes what the cycles have left behind: goroutines and series in all, bytes for each cycle.
func (l *leakSamples) addTo(r roundFigures, prefix string) {
	last := len(l.cycles) - 1
	r[prefix+"goroutine_growth"] = l.goroutines[last] - l.goroutines[0]
	r[prefix+"series_growth"] = l.series[last] - l.series[0]
	r[prefix+"heap_bytes_per_cycle"] = slope(l.cycles, l.heap)
	r[prefix+"cycles"] = l.cycles[last]
}

// usedCPU returns the time for which this process has used processors so far.
func usedCPU() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage), "read the used CPU time")
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// machineFigures says how busy the machine is; a system without /proc has no load average.
func machineFigures(when string) roundFigures {
	r := roundFigures{"cores": float64(runtime.NumCPU())}
	var load float64
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		if _, err := fmt.Sscan(string(data), &load); err == nil {
			r["load_average_"+when] = load
		}
	}
	return r
}

// requestCounter counts the requests of a process and its error log lines, without a limit of its own, as in
// controller-runtime's GetConfig.
type requestCounter struct{ requests, watches, errors atomic.Int64 }

func (c *requestCounter) configFor(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = -1, -1
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { return countingTransport{base, c} })
	return cfg
}

type countingTransport struct {
	base    http.RoundTripper
	counter *requestCounter
}

// RoundTrip counts a watch apart from the other requests.
func (t countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		t.counter.watches.Add(1)
	} else {
		t.counter.requests.Add(1)
	}
	return t.base.RoundTrip(r)
}

// newLogger drops everything but counts errors, those that client-go reports to apimachinery too.
func (c *requestCounter) newLogger() logr.Logger {
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(context.Context, error, string, ...any) { c.errors.Add(1) }}
	return logr.New(errorCountingSink{c})
}

type errorCountingSink struct{ counter *requestCounter }

func (errorCountingSink) Init(logr.RuntimeInfo)            {}
func (errorCountingSink) Enabled(int) bool                 { return true }
func (errorCountingSink) Info(int, string, ...any)         {}
func (s errorCountingSink) Error(error, string, ...any)    { s.counter.errors.Add(1) }
func (s errorCountingSink) WithValues(...any) logr.LogSink { return s }
func (s errorCountingSink) WithName(string) logr.LogSink   { return s }
