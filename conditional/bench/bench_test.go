// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func TestLimitsHaveFigures(t *testing.T) {
	seen, rows := map[string]bool{}, tableRows(fullSizes())
	for _, r := range rows {
		if len(r.limits) > len(r.ours) {
			t.Errorf("row %q: expected no more limits than figures, found %d for %d", r.what, len(r.limits), len(r.ours))
		}
		if seen[r.what] {
			t.Errorf("row %q is there twice", r.what)
		}
		seen[r.what] = true
	}
}

func TestRoundsBecomeOneNumberEach(t *testing.T) {
	f := allFigures{}
	for _, samples := range [][]float64{{1, 2, 30}, {1, 3, 10}, {1, 4, 20}} {
		r := roundFigures{"rounds": 1}
		r.addSpread("start", samples)
		r.addSpread("never", nil)
		f.add(r)
	}
	file := filepath.Join(t.TempDir(), "new", "figures.json")
	testenv.Must(t, f.save(file))
	data, err := os.ReadFile(file)
	testenv.Must(t, err)
	var got map[string]float64
	testenv.Must(t, json.Unmarshal(data, &got))
	want := map[string]float64{"rounds": 1, "start_p50_seconds": 3, "start_p99_seconds": 20, "start_max_seconds": 30}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong figures (-want +got):\n%s", diff)
	}
}

func TestTable(t *testing.T) {
	rows := []tableRow{
		{"start", unitSeconds, []string{"start_p50_seconds", "start_p99_seconds"}, []string{"plain_start_p50_seconds"}, []float64{0.005, 0.015}},
		{"storm", unitSeconds, []string{"storm_seconds"}, nil, []float64{10}},
		{"heap", unitBytes, []string{"heap"}, nil, []float64{100 << 10}},
		{"goroutines", unitCount, []string{"goroutines"}, nil, []float64{0}},
		{"a fall", unitBytes, []string{"fall"}, nil, []float64{100}},
		{"CPU", unitMilliseconds, []string{"cpu"}, nil, nil},
		{"left out", unitCount, []string{"unmeasured"}, nil, []float64{0}},
	}
	flat := map[string]float64{
		"start_p50_seconds": 0.004321, "start_p99_seconds": 0.016, "plain_start_p50_seconds": 0.203,
		"storm_seconds": 9.987, "heap": 515 << 10, "goroutines": 0, "fall": -12.5, "cpu": 1.88,
	}
	want := strings.TrimLeft(`
figure      ours (p50 / p99 / max)  plain controller-runtime  target          met
start       4.32 ms / 16 ms         203 ms                    ≤ 5 ms / 15 ms  MISSED
storm       9.99 s                  -                         ≤ 10 s          yes
heap        515 KiB                 -                         ≤ 100 KiB       MISSED
goroutines  0                       -                         ≤ 0             yes
a fall      -12.5 B                 -                         ≤ 100 B         yes
CPU         1.88 ms                 -                         -               -
`, "\n")
	var got strings.Builder
	testenv.Must(t, printTable(&got, rows, flat))
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("wrong table (-want +got):\n%s", diff)
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	tests := map[string]struct {
		samples []float64
		p, want float64
	}{
		"no samples: every percentile is 0":                       {nil, 50, 0},
		"a single sample: every percentile is the sample":         {[]float64{7}, 99, 7},
		"two samples: the median is the lower one":                {[]float64{2, 1}, 50, 1},
		"unsorted samples: the same percentile as sorted samples": {hundred, 50, 50},
		"a hundred samples: p99 excludes the largest":             {hundred, 99, 99},
		"p100 is the largest sample":                              {hundred, 100, 100},
		"p0 is the smallest sample":                               {hundred, 0, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := percentile(tt.samples, tt.p); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSlope(t *testing.T) {
	tests := map[string]struct {
		x, y []float64
		want float64
	}{
		"slope of no points is 0":                                      {nil, nil, 0},
		"slope of one point is 0":                                      {[]float64{1}, []float64{5}, 0},
		"slope of points at the same time is 0":                        {[]float64{1, 1}, []float64{5, 9}, 0},
		"slope of a line that rises by 3 per unit is 3":                {[]float64{0, 10, 20}, []float64{100, 130, 160}, 3},
		"slope of points that deviate symmetrically from a level is 0": {[]float64{0, 1, 2, 3}, []float64{10, 14, 14, 10}, 0},
		"slope of a line that falls by 0.5 per unit is -0.5":           {[]float64{0, 100}, []float64{50, 0}, -0.5},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := slope(tt.x, tt.y); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
