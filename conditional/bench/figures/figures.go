// SPDX-License-Identifier: Apache-2.0

// Package figures keeps what the bench measures: numbers by name for machines, a table with targets for people.
package figures

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Round is what one round of a trial has measured: SI units, named as they are written to the file.
type Round map[string]float64

// Add takes over the figures of another round.
func (r Round) Add(more Round) { maps.Copy(r, more) }

// Spread adds the median, the 99th percentile and the maximum of samples in seconds, as <name>_p50_seconds and so on.
func (r Round) Spread(name string, samples []float64) {
	if len(samples) == 0 {
		return
	}
	r[name+"_p50_seconds"] = Percentile(samples, 50)
	r[name+"_p99_seconds"] = Percentile(samples, 99)
	r[name+"_max_seconds"] = slices.Max(samples)
}

// Figures are the values of each figure, one for each round.
type Figures map[string][]float64

// Add keeps the figures of one more round.
func (f Figures) Add(r Round) {
	for name, value := range r {
		f[name] = append(f[name], value)
	}
}

// Flat returns one number for each figure: the median of the rounds, or the maximum of maxima.
func (f Figures) Flat() map[string]float64 {
	flat := map[string]float64{}
	for name, values := range f {
		if strings.Contains(name, "_max_") {
			flat[name] = slices.Max(values)
			continue
		}
		flat[name] = median(values)
	}
	return flat
}

// Save writes the flat figures as a JSON object, and makes its folder.
func (f Figures) Save(file string) error {
	data, err := json.MarshalIndent(f.Flat(), "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("make the folder of the figures (name another file with --out): %w", err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the figures (name another file with --out): %w", err)
	}
	return nil
}
