// SPDX-License-Identifier: Apache-2.0

// Package gtid calculates with MySQL's sets of global transaction identifiers, as the server prints them.
package gtid

import (
	"slices"
	"strconv"
	"strings"
)

// Set is a set of transactions. The zero value is empty; a Set is never changed once it is made.
type Set struct {
	// bySource are sorted by source, and none is empty.
	bySource []sourceIntervals
}

// sourceTag is who numbers transactions: a server, and since MySQL 8.3 optionally a tag of its own.
type sourceTag struct{ uuid, tag string }

// sourceIntervals is what a set holds of one source: intervals that are sorted and neither overlap nor touch.
type sourceIntervals struct {
	sourceTag
	intervals []transactionInterval
}

// transactionInterval is first to last, both included.
type transactionInterval struct{ first, last int64 }

// String prints the set as the server does, without line breaks.
func (s Set) String() string {
	var b strings.Builder
	for at, r := range s.bySource {
		if at == 0 || s.bySource[at-1].uuid != r.uuid { // The tags of one server follow its UUID, which stands once.
			if at > 0 {
				b.WriteByte(',')
			}
			b.WriteString(r.uuid)
		}
		if r.tag != "" {
			b.WriteByte(':')
			b.WriteString(r.tag)
		}
		for _, i := range r.intervals {
			b.WriteByte(':')
			b.WriteString(strconv.FormatInt(i.first, 10))
			if i.last != i.first {
				b.WriteByte('-')
				b.WriteString(strconv.FormatInt(i.last, 10))
			}
		}
	}
	return b.String()
}

// IsEmpty says whether the set holds no transaction.
func (s Set) IsEmpty() bool { return len(s.bySource) == 0 }

// Count is the number of transactions.
func (s Set) Count() int64 {
	var n int64
	for _, r := range s.bySource {
		for _, i := range r.intervals {
			n += i.last - i.first + 1
		}
	}
	return n
}

// Equal says whether both sets hold the same transactions.
func (s Set) Equal(other Set) bool {
	return slices.EqualFunc(s.bySource, other.bySource, func(a, b sourceIntervals) bool {
		return a.sourceTag == b.sourceTag && slices.Equal(a.intervals, b.intervals)
	})
}

// Contains says whether every transaction of other is in s.
func (s Set) Contains(other Set) bool {
	at := 0
	for _, want := range other.bySource {
		for at < len(s.bySource) && s.bySource[at].compare(want.sourceTag) < 0 {
			at++
		}
		if at == len(s.bySource) || s.bySource[at].sourceTag != want.sourceTag || !containsIntervals(s.bySource[at].intervals, want.intervals) {
			return false
		}
	}
	return true
}

// Union is what is in s, in other or in both.
func (s Set) Union(other Set) Set {
	switch {
	case s.IsEmpty():
		return other
	case other.IsEmpty():
		return s
	}
	merged := make([]sourceIntervals, 0, len(s.bySource)+len(other.bySource))
	a, b := s.bySource, other.bySource
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].compare(b[0].sourceTag); {
		case c < 0:
			merged, a = append(merged, a[0]), a[1:]
		case c > 0:
			merged, b = append(merged, b[0]), b[1:]
		default:
			merged = append(merged, sourceIntervals{a[0].sourceTag, mergeIntervals(a[0].intervals, b[0].intervals)})
			a, b = a[1:], b[1:]
		}
	}
	return Set{append(append(merged, a...), b...)}
}

// Subtract is what is in s and not in other.
func (s Set) Subtract(other Set) Set {
	var left []sourceIntervals
	at := 0
	for _, r := range s.bySource {
		for at < len(other.bySource) && other.bySource[at].compare(r.sourceTag) < 0 {
			at++
		}
		if at < len(other.bySource) && other.bySource[at].sourceTag == r.sourceTag {
			r.intervals = subtractIntervals(r.intervals, other.bySource[at].intervals)
		}
		if len(r.intervals) > 0 {
			left = append(left, r)
		}
	}
	return Set{left}
}

// NumberedBy is the part of the set that one server numbered, whatever the tag.
func (s Set) NumberedBy(uuid string) Set {
	return s.filterSources(func(r sourceIntervals) bool { return r.uuid == strings.ToLower(uuid) })
}

// NotNumberedBy is the part of the set that other servers numbered.
func (s Set) NotNumberedBy(uuid string) Set {
	return s.filterSources(func(r sourceIntervals) bool { return r.uuid != strings.ToLower(uuid) })
}

func (s Set) filterSources(keep func(sourceIntervals) bool) Set {
	var left []sourceIntervals
	for _, r := range s.bySource {
		if keep(r) {
			left = append(left, r)
		}
	}
	return Set{left}
}

func (s sourceTag) compare(other sourceTag) int {
	if c := strings.Compare(s.uuid, other.uuid); c != 0 {
		return c
	}
	return strings.Compare(s.tag, other.tag)
}
