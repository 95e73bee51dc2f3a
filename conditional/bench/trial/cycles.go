// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/world"
)

// looks is how often a leak is looked for while the cycles run, beside the one before them.
const looks = 20

// leak is what the process holds after some cycles.
type leak struct{ cycles, goroutines, heap, series []float64 }

func (l *leak) look(ctx context.Context, cycle int) error {
	series, err := countSeries()
	if err != nil {
		return err
	}
	held, err := world.Settle(ctx)
	if err != nil {
		return err
	}
	l.series = append(l.series, series)
	l.cycles = append(l.cycles, float64(cycle))
	l.goroutines = append(l.goroutines, held.Goroutines)
	l.heap = append(l.heap, held.Heap)
	return nil
}

// countSeries returns how many time series controller-runtime's registry has.
func countSeries() (float64, error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return 0, fmt.Errorf("gather metrics: %w", err)
	}
	n := 0
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return float64(n), nil
}

// add writes what the cycles have left behind: goroutines and series in all, bytes for each cycle.
func (l *leak) add(r figures.Round, prefix string) {
	if len(l.cycles) == 0 {
		return
	}
	last := len(l.cycles) - 1
	r[prefix+"goroutine_growth"] = l.goroutines[last] - l.goroutines[0]
	r[prefix+"series_growth"] = l.series[last] - l.series[0]
	r[prefix+"heap_bytes_per_cycle"] = figures.Slope(l.cycles, l.heap)
	r[prefix+"cycles"] = l.cycles[last]
}

// repeat does n cycles after some that warm up, and looks for a leak now and then.
func (b *bed) repeat(ctx context.Context, n int, look func(context.Context, int) error, once func(ctx context.Context, warm bool) error) error {
	warming := max(n/20, 2)
	for i := range warming + n {
		cycle := i - warming
		if cycle >= 0 && cycle%max(n/looks, 1) == 0 {
			if err := look(ctx, cycle); err != nil {
				return err
			}
		}
		b.progress.Count("cycles", max(cycle, 0), n)
		if err := once(ctx, cycle >= 0); err != nil {
			return err
		}
	}
	return look(ctx, n)
}
