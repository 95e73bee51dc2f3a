// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"

	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/world"
)

// looks is how often a leak is looked for while the cycles run, beside the one before them.
const looks = 20

// leak is what the process holds after some cycles.
type leak struct{ cycles, goroutines, heap []float64 }

func (l *leak) look(ctx context.Context, cycle int) error {
	held, err := world.Settle(ctx)
	if err != nil {
		return err
	}
	l.cycles = append(l.cycles, float64(cycle))
	l.goroutines = append(l.goroutines, held.Goroutines)
	l.heap = append(l.heap, held.Heap)
	return nil
}

// add writes what the cycles have left behind: goroutines in all, bytes for each cycle.
func (l *leak) add(r figures.Round, prefix string) {
	if len(l.cycles) == 0 {
		return
	}
	last := len(l.cycles) - 1
	r[prefix+"goroutine_growth"] = l.goroutines[last] - l.goroutines[0]
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
