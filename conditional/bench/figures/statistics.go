// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"math"
	"slices"
)

// Percentile returns the smallest sample that at least p percent of all samples do not exceed; 0 if there are none.
func Percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Slope returns how much y grows for each unit of x, by linear regression; 0 if the points have fewer than two x.
func Slope(x, y []float64) float64 {
	n := min(len(x), len(y))
	meanX, meanY := mean(x[:n]), mean(y[:n])
	var both, square float64
	for i := range n {
		both += (x[i] - meanX) * (y[i] - meanY)
		square += (x[i] - meanX) * (x[i] - meanX)
	}
	if square == 0 {
		return 0
	}
	return both / square
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / max(float64(len(values)), 1)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}
