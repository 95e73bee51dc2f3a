// SPDX-License-Identifier: Apache-2.0

// Package figures collects the results of benchmarks, and writes them as a table for users and as a flat JSON object
// for programs.
package figures

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// Figures contains the measured values of each figure by name, one value per round.
type Figures map[string][]float64

// AddValue adds one value to a figure.
func (f Figures) AddValue(name string, value float64) { f[name] = append(f[name], value) }

// Percentile returns a value such that the given share of a figure's values does not exceed it.
func (f Figures) Percentile(name string, share float64) float64 {
	sorted := slices.Sorted(slices.Values(f[name]))
	return sorted[max(int(math.Ceil(share*float64(len(sorted)))), 1)-1]
}

func medianOf(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// PrintTable writes a table with the minimum, median and maximum of each figure.
func (f Figures) PrintTable(out io.Writer) {
	fmt.Fprintf(out, "\n%-34s %10s %10s %10s %7s\n", "figure", "min", "median", "max", "rounds")
	for _, name := range slices.Sorted(maps.Keys(f)) {
		v := f[name]
		fmt.Fprintf(out, "%-34s %10.2f %10.2f %10.2f %7d\n", name, slices.Min(v), medianOf(v), slices.Max(v), len(v))
	}
}

// SaveMedians writes the medians as a flat JSON object.
func (f Figures) SaveMedians(file string) error {
	flat := map[string]float64{}
	for name, values := range f {
		flat[name] = medianOf(values)
	}
	data, err := json.MarshalIndent(flat, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}
