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
	// runs are sorted by source, and none is empty.
	runs []run
}

// source is who numbers transactions: a server, and since MySQL 8.3 optionally a tag of its own.
type source struct{ uuid, tag string }

// run is what a set holds of one source: intervals that are sorted and neither overlap nor touch.
type run struct {
	source
	intervals []interval
}

// interval is first to last, both included.
type interval struct{ first, last int64 }

// String prints the set as the server does, without line breaks.
func (s Set) String() string {
	var b strings.Builder
	for at, r := range s.runs {
		if at == 0 || s.runs[at-1].uuid != r.uuid {
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

// Empty says whether the set holds no transaction.
func (s Set) Empty() bool { return len(s.runs) == 0 }

// Count is the number of transactions.
func (s Set) Count() int64 {
	var n int64
	for _, r := range s.runs {
		for _, i := range r.intervals {
			n += i.last - i.first + 1
		}
	}
	return n
}

// Equal says whether both sets hold the same transactions.
func (s Set) Equal(other Set) bool {
	return slices.EqualFunc(s.runs, other.runs, func(a, b run) bool {
		return a.source == b.source && slices.Equal(a.intervals, b.intervals)
	})
}

// Contains says whether every transaction of other is in s.
func (s Set) Contains(other Set) bool {
	at := 0
	for _, want := range other.runs {
		for at < len(s.runs) && s.runs[at].compare(want.source) < 0 {
			at++
		}
		if at == len(s.runs) || s.runs[at].source != want.source || !cover(s.runs[at].intervals, want.intervals) {
			return false
		}
	}
	return true
}

// Union is what is in s, in other or in both.
func (s Set) Union(other Set) Set {
	switch {
	case s.Empty():
		return other
	case other.Empty():
		return s
	}
	merged := make([]run, 0, len(s.runs)+len(other.runs))
	a, b := s.runs, other.runs
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].compare(b[0].source); {
		case c < 0:
			merged, a = append(merged, a[0]), a[1:]
		case c > 0:
			merged, b = append(merged, b[0]), b[1:]
		default:
			merged = append(merged, run{a[0].source, join(a[0].intervals, b[0].intervals)})
			a, b = a[1:], b[1:]
		}
	}
	return Set{append(append(merged, a...), b...)}
}

// Subtract is what is in s and not in other.
func (s Set) Subtract(other Set) Set {
	var left []run
	at := 0
	for _, r := range s.runs {
		for at < len(other.runs) && other.runs[at].compare(r.source) < 0 {
			at++
		}
		if at < len(other.runs) && other.runs[at].source == r.source {
			r.intervals = without(r.intervals, other.runs[at].intervals)
		}
		if len(r.intervals) > 0 {
			left = append(left, r)
		}
	}
	return Set{left}
}

// Only is the part of the set that one server numbered, whatever the tag.
func (s Set) Only(uuid string) Set {
	return s.where(func(r run) bool { return r.uuid == strings.ToLower(uuid) })
}

// Without is the part of the set that other servers numbered.
func (s Set) Without(uuid string) Set {
	return s.where(func(r run) bool { return r.uuid != strings.ToLower(uuid) })
}

func (s Set) where(keep func(run) bool) Set {
	var left []run
	for _, r := range s.runs {
		if keep(r) {
			left = append(left, r)
		}
	}
	return Set{left}
}

func (s source) compare(other source) int {
	if c := strings.Compare(s.uuid, other.uuid); c != 0 {
		return c
	}
	return strings.Compare(s.tag, other.tag)
}
