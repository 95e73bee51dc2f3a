// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/trial"
)

// targets is the table: what is shown, and how large it may be.
func targets(s trial.Sizes) []figures.Row {
	storm, plainStorm := fmt.Sprintf("storm_%d_synced_seconds", s.Storm), fmt.Sprintf("plain_storm_%d_synced_seconds", s.PlainStorm)
	return []figures.Row{
		{
			What: "CRD established → sources synced", Unit: figures.Seconds, Limits: []float64{0.020, 0.150, 1},
			Ours: spread("established_to_synced"), Plain: spread("plain_established_to_synced"),
		},
		{
			What: "CRD gone → dormant", Unit: figures.Seconds, Limits: []float64{0.020, 0.020},
			Ours: spread("gone_to_stopped"),
		},
		{
			What: "start on a served kind → sources synced", Unit: figures.Seconds, Limits: []float64{0.005, 0.015},
			Ours: spread("served_start"), Plain: spread("plain_served_start"),
		},
		{What: "stop on a served kind → dormant", Unit: figures.Seconds, Ours: spread("served_stop")},
		row("goroutines grown in all cycles, own informer", figures.Count, "goroutine_growth", 0),
		row("heap grown per cycle, own informer", figures.Bytes, "heap_bytes_per_cycle", 100),
		row("metric series grown in all cycles, own informer", figures.Count, "series_growth", 0),
		row("goroutines grown in all cycles, shared kind", figures.Count, "shared_goroutine_growth", 0),
		row("heap grown per cycle, shared kind", figures.Bytes, "shared_heap_bytes_per_cycle", 100),
		row("events that the neighbour has lost", figures.Count, "shared_lost_events", 0),
		row("restarts of the neighbour", figures.Count, "shared_neighbour_restarts", 0),
		{
			What: fmt.Sprintf("storm of %d (plain %d): last established → all synced", s.Storm, s.PlainStorm), Unit: figures.Seconds,
			Ours: []string{storm}, Plain: []string{plainStorm}, Limits: []float64{10},
		},
		row("goroutines per running group", figures.Count, "storm_goroutines_per_running_group", 20),
		row("heap per running group", figures.Bytes, "storm_heap_bytes_per_running_group", 100<<10),
		row("stack per running group", figures.Bytes, "storm_stack_bytes_per_running_group"),
		row(fmt.Sprintf("requests a minute, %d dormant kinds", s.DormantKinds), figures.Count, "dormant_requests_per_minute", 0),
		row("watches opened a minute, dormant", figures.Count, "dormant_watch_requests_per_minute", 0.2),
		row("CPU time a minute, dormant", figures.Milliseconds, "dormant_cpu_milliseconds_per_minute", 5),
		row("error log lines, dormant", figures.Count, "dormant_error_logs", 0),
		row(fmt.Sprintf("goroutines of %d dormant groups", s.DormantKinds), figures.Count, "dormant_goroutines", 12),
		row("heap per dormant group", figures.Bytes, "heap_bytes_per_dormant_group", 2<<10),
		row("stack per dormant group", figures.Bytes, "stack_bytes_per_dormant_group"),
	}
}

func spread(name string) []string {
	return []string{name + "_p50_seconds", name + "_p99_seconds", name + "_max_seconds"}
}

// row has one figure, and the same with plain_ before it.
func row(what string, unit figures.Unit, name string, limits ...float64) figures.Row {
	return figures.Row{What: what, Unit: unit, Ours: []string{name}, Plain: []string{"plain_" + name}, Limits: limits}
}
