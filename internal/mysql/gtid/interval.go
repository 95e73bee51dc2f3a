// SPDX-License-Identifier: Apache-2.0

package gtid

import (
	"cmp"
	"slices"
)

// The arithmetic of sorted intervals that neither overlap nor touch.

// normalizeIntervals sorts intervals and joins those that overlap or touch.
func normalizeIntervals(list []transactionInterval) []transactionInterval {
	slices.SortFunc(list, func(a, b transactionInterval) int { return cmp.Compare(a.first, b.first) })
	out := list[:0] // It is never longer than what was read of list.
	for _, i := range list {
		if last := len(out) - 1; last >= 0 && i.first <= out[last].last+1 {
			out[last].last = max(out[last].last, i.last)
			continue
		}
		out = append(out, i)
	}
	return out
}

func mergeIntervals(a, b []transactionInterval) []transactionInterval {
	return normalizeIntervals(append(slices.Clone(a), b...))
}

// containsIntervals reports whether every number of want is in have.
func containsIntervals(have, want []transactionInterval) bool {
	at := 0
	for _, w := range want {
		for at < len(have) && have[at].last < w.first {
			at++
		}
		if at == len(have) || have[at].first > w.first || have[at].last < w.last {
			return false
		}
	}
	return true
}

// subtractIntervals cuts the numbers of b out of a.
func subtractIntervals(a, b []transactionInterval) []transactionInterval {
	var left []transactionInterval
	at := 0
	for _, i := range a {
		for at < len(b) && b[at].last < i.first {
			at++
		}
		// at stays: the last interval of b may reach into the next one of a.
		for k := at; k < len(b) && b[k].first <= i.last && i.first <= i.last; k++ {
			if b[k].first > i.first {
				left = append(left, transactionInterval{i.first, b[k].first - 1})
			}
			i.first = b[k].last + 1
		}
		if i.first <= i.last {
			left = append(left, i)
		}
	}
	return left
}
