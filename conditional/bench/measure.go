// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// roundFigures contains the figures of one round of a trial, with the names used in the file, which contain the unit.
type roundFigures map[string]float64

// addSpread adds the median, the 99th percentile and the maximum of samples in seconds.
func (r roundFigures) addSpread(name string, samples []float64) {
	if len(samples) == 0 {
		return
	}
	for i, value := range []float64{percentile(samples, 50), percentile(samples, 99), slices.Max(samples)} {
		r[spreadNames(name)[i]] = value
	}
}

func spreadNames(name string) []string {
	return []string{name + "_p50_seconds", name + "_p99_seconds", name + "_max_seconds"}
}

// allFigures contains the values of each figure, one per round.
type allFigures map[string][]float64

func (f allFigures) add(r roundFigures) {
	for name, value := range r {
		f[name] = append(f[name], value)
	}
}

// flatten returns, for each figure, the median of the rounds, or the maximum if the figure is itself a maximum.
func (f allFigures) flatten() map[string]float64 {
	flat := map[string]float64{}
	for name, values := range f {
		flat[name] = median(values)
		if strings.Contains(name, "_max_") {
			flat[name] = slices.Max(values)
		}
	}
	return flat
}

// save writes the flattened figures as a JSON object, and creates the folder.
func (f allFigures) save(file string) error {
	data, err := json.MarshalIndent(f.flatten(), "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("create the folder of the figures: %w", err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}

// percentile returns the smallest sample that is greater than or equal to at least p percent of all samples; 0 if there
// are no samples.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func median(values []float64) float64 {
	sorted, n := slices.Sorted(slices.Values(values)), len(values)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// slope returns the growth of y per unit of x, by linear regression; 0 if the points have fewer than two different x.
func slope(x, y []float64) float64 {
	var sumX, sumY, covariance, variance float64
	for i := range x {
		sumX, sumY = sumX+x[i], sumY+y[i]
	}
	n := max(float64(len(x)), 1)
	for i := range x {
		covariance += (x[i] - sumX/n) * (y[i] - sumY/n)
		variance += (x[i] - sumX/n) * (x[i] - sumX/n)
	}
	if variance == 0 {
		return 0
	}
	return covariance / variance
}

// valueUnit is the unit of a row's numbers.
type valueUnit int

const (
	unitSeconds valueUnit = iota
	unitCount
	unitBytes
	unitMilliseconds
)

// tableRow is one line of the table.
type tableRow struct {
	what string
	unit valueUnit
	// ours and plain list the names of the figures to show, in this order.
	ours, plain []string
	// limits are the maximum values for ours, in the same order. Figures after the last limit have no maximum.
	limits []float64
}

// tableRows returns the rows of the table with their limits.
func tableRows(s trialSizes) []tableRow {
	row := func(what string, unit valueUnit, name string, limits ...float64) tableRow {
		return tableRow{what, unit, []string{name}, []string{"plain_" + name}, limits}
	}
	storm, plainStorm := fmt.Sprintf("storm_%d_synced_seconds", s.Storm), fmt.Sprintf("plain_storm_%d_synced_seconds", s.PlainStorm)
	providers := fmt.Sprintf("providers_storm_%d_synced_seconds", s.Providers)
	plainProviders := fmt.Sprintf("providers_plain_storm_%d_synced_seconds", s.Providers)
	return []tableRow{
		{"CRD established → sources synced", unitSeconds, spreadNames("established_to_synced"), spreadNames("plain_established_to_synced"), []float64{0.020, 0.150, 1}},
		{"CRD gone → dormant", unitSeconds, spreadNames("gone_to_stopped"), nil, []float64{0.020, 0.020}},
		{"start on a served kind → sources synced", unitSeconds, spreadNames("served_start"), spreadNames("plain_served_start"), []float64{0.005, 0.015}},
		{"stop on a served kind → dormant", unitSeconds, spreadNames("served_stop"), nil, nil},
		row("goroutines grown in all cycles, own informer", unitCount, "goroutine_growth", 0),
		row("heap grown per cycle, own informer", unitBytes, "heap_bytes_per_cycle", 100),
		row("metric series grown in all cycles, own informer", unitCount, "series_growth", 0),
		row("goroutines grown in all cycles, shared kind", unitCount, "shared_goroutine_growth", 0),
		row("heap grown per cycle, shared kind", unitBytes, "shared_heap_bytes_per_cycle", 100),
		row("events lost by another group of the same kind", unitCount, "shared_lost_events", 0),
		row("restarts of another group of the same kind", unitCount, "shared_neighbour_restarts", 0),
		{fmt.Sprintf("storm of %d (plain %d): last established → all synced", s.Storm, s.PlainStorm), unitSeconds, []string{storm}, []string{plainStorm}, []float64{10}},
		row("goroutines per running group", unitCount, "storm_goroutines_per_running_group", 20),
		row("heap per running group", unitBytes, "storm_heap_bytes_per_running_group", 100<<10),
		row("stack per running group", unitBytes, "storm_stack_bytes_per_running_group"),
		row(fmt.Sprintf("deletions not reconciled, of %d objects deleted with their CRD", lastDeletions), unitCount, "deletions_lost", 0),
		{"set-up in a running manager → sources synced", unitSeconds, spreadNames("runtime_setup"), nil, []float64{0.020, 0.150}},
		row("goroutines grown in all set-ups and removals", unitCount, "runtime_goroutine_growth", 0),
		row("metric series grown in all set-ups and removals", unitCount, "runtime_series_growth", 0),
		{"start next to a slow condition → sources synced", unitSeconds, spreadNames("slow_start"), nil, []float64{0.005, 0.015}},
		{fmt.Sprintf("%d CRDs at once: last established → all synced", s.Providers), unitSeconds, []string{providers}, []string{plainProviders}, []float64{10}},
		{fmt.Sprintf("heap per running group, %d CRDs at once", s.Providers), unitBytes, []string{"providers_storm_heap_bytes_per_running_group"}, []string{"providers_plain_storm_heap_bytes_per_running_group"}, nil},
		{fmt.Sprintf("goroutines per running group, %d CRDs at once", s.Providers), unitCount, []string{"providers_storm_goroutines_per_running_group"}, []string{"providers_plain_storm_goroutines_per_running_group"}, nil},
		// The limit allows for the detector's check of all served kinds every five minutes.
		row(fmt.Sprintf("requests a minute, %d dormant kinds", s.DormantKinds), unitCount, "dormant_requests_per_minute", 0.3),
		row("watches opened a minute, dormant", unitCount, "dormant_watch_requests_per_minute", 0.2),
		row("CPU time a minute, dormant", unitMilliseconds, "dormant_cpu_milliseconds_per_minute", 5),
		row("error log lines, dormant", unitCount, "dormant_error_logs", 0),
		row(fmt.Sprintf("goroutines of %d dormant groups", s.DormantKinds), unitCount, "dormant_goroutines", 12),
		row("heap per dormant group", unitBytes, "heap_bytes_per_dormant_group", 2<<10),
		row(fmt.Sprintf("heap of %d dormant groups, with shared memory", s.DormantKinds), unitBytes, "heap_bytes_of_all_dormant_groups"),
	}
}

func (r tableRow) isMissed(flat map[string]float64) bool {
	for i, limit := range r.limits {
		if flat[r.ours[i]] > limit {
			return true
		}
	}
	return false
}

// printTable writes the rows that were measured.
func printTable(out io.Writer, rows []tableRow, flat map[string]float64) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "figure\tours (p50 / p99 / max)\tplain controller-runtime\ttarget\tmet")
	for _, r := range rows {
		if _, measured := flat[r.ours[0]]; !measured {
			continue
		}
		target, met := "-", "-"
		if len(r.limits) > 0 {
			target, met = "≤ "+formatAll(r.limits, r.unit), "yes"
		}
		if r.isMissed(flat) {
			met = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.what, r.format(r.ours, flat), r.format(r.plain, flat), target, met)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

func (r tableRow) format(names []string, flat map[string]float64) string {
	var values []float64
	for _, name := range names {
		if value, measured := flat[name]; measured {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		return "-"
	}
	return formatAll(values, r.unit)
}

func formatAll(values []float64, unit valueUnit) string {
	var all []string
	for _, v := range values {
		all = append(all, formatValue(v, unit))
	}
	return strings.Join(all, " / ")
}

// formatValue writes a number and its unit, with decimals for three significant digits.
func formatValue(v float64, unit valueUnit) string {
	switch unit {
	case unitSeconds:
		if math.Abs(v) < 1 {
			return formatDigits(v*1000) + " ms"
		}
		return formatDigits(v) + " s"
	case unitMilliseconds:
		return formatDigits(v) + " ms"
	case unitBytes:
		if math.Abs(v) >= 10<<10 {
			return formatDigits(v/(1<<10)) + " KiB"
		}
		return formatDigits(v) + " B"
	case unitCount:
	}
	return formatDigits(v)
}

func formatDigits(v float64) string {
	decimals := 0
	if size := math.Abs(v); size < 100 && v != math.Trunc(v) {
		decimals = 1
		if size < 10 {
			decimals = 2
		}
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// memoryUsage describes the memory of this process.
type memoryUsage struct{ goroutines, heap, stack float64 }

// settledUsage waits until the number of goroutines has been stable for 200 ms, and returns the memory without garbage.
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
	for range 3 { // A sync.Pool releases its content only after the second collection.
		runtime.GC()
		runtime.ReadMemStats(&stats)
		heap = min(heap, float64(stats.HeapAlloc))
	}
	return memoryUsage{goroutines: float64(runtime.NumGoroutine()), heap: heap, stack: float64(stats.StackInuse)}
}

// addUsage adds the cost per group or controller, in comparison to an earlier measurement.
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

// leakSamples contains the resources of the process after several cycles.
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

// addTo adds the growth over the cycles: goroutines and series in total, and bytes per cycle.
func (l *leakSamples) addTo(r roundFigures, prefix string) {
	last := len(l.cycles) - 1
	r[prefix+"goroutine_growth"] = l.goroutines[last] - l.goroutines[0]
	r[prefix+"series_growth"] = l.series[last] - l.series[0]
	r[prefix+"heap_bytes_per_cycle"] = slope(l.cycles, l.heap)
	r[prefix+"cycles"] = l.cycles[last]
}

// usedCPU returns the CPU time that this process has used so far.
func usedCPU() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage), "read the used CPU time")
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// requestCounter counts the requests of a process and its error log lines. Like controller-runtime's GetConfig, it does
// not limit the rate.
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

// RoundTrip counts a request. Watches are counted separately.
func (t countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		t.counter.watches.Add(1)
	} else {
		t.counter.requests.Add(1)
	}
	return t.base.RoundTrip(r)
}

// newLogger returns a logger that only counts errors, including those that client-go reports to apimachinery.
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
