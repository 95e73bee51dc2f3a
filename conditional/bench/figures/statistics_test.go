// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"math"
	"testing"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	tests := map[string]struct {
		samples []float64
		p, want float64
	}{
		"nothing was measured":            {nil, 50, 0},
		"one sample is every percentile":  {[]float64{7}, 99, 7},
		"the lower one of two is in half": {[]float64{2, 1}, 50, 1},
		"the order does not matter":       {hundred, 50, 50},
		"one of a hundred is left out":    {hundred, 99, 99},
		"all are in":                      {hundred, 100, 100},
		"nothing is below the smallest":   {hundred, 0, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Percentile(tt.samples, tt.p); got != tt.want {
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
		"nothing was measured":           {nil, nil, 0},
		"one point has no slope":         {[]float64{1}, []float64{5}, 0},
		"points above each other":        {[]float64{1, 1}, []float64{5, 9}, 0},
		"a line":                         {[]float64{0, 10, 20}, []float64{100, 130, 160}, 3},
		"noise on both sides of a level": {[]float64{0, 1, 2, 3}, []float64{10, 14, 14, 10}, 0},
		"a fall":                         {[]float64{0, 100}, []float64{50, 0}, -0.5},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Slope(tt.x, tt.y); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
