// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// A request may be large and its author is untrusted, so the length of a reason is limited.
	maxQuotedBytes = 80
	maxListed      = 10
)

func quoteBounded[S ~string](text S) string {
	if len(text) > maxQuotedBytes {
		return fmt.Sprintf("%q…", text[:maxQuotedBytes])
	}
	return fmt.Sprintf("%q", text)
}

// quoteSorted quotes values in sorted order.
func quoteSorted[S ~string](values []S) string {
	if len(values) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(values))
	words := make([]string, 0, len(sorted))
	for _, value := range sorted[:min(len(sorted), maxListed)] {
		words = append(words, quoteBounded(value))
	}
	if more := len(sorted) - maxListed; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// sameSet reports whether both slices contain the same values, in any order. Repeated values must occur equally
// often.
func sameSet[S ~string](a, b []S) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
