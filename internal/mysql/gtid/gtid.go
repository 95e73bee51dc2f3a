// SPDX-License-Identifier: Apache-2.0

// Package gtid implements MySQL's sets of global transaction identifiers, in the server's text format.
package gtid

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Set is a set of transactions. The zero value is empty. A Set is immutable.
type Set struct {
	// bySource is sorted by source, and no element is empty.
	bySource []sourceIntervals
}

// sourceTag identifies the source of transaction numbers: a server and, since MySQL 8.3, an optional tag.
type sourceTag struct{ uuid, tag string }

// sourceIntervals is the part of a set with one sourceTag. Its intervals are sorted and neither overlap nor touch.
type sourceIntervals struct {
	sourceTag
	intervals []transactionInterval
}

// transactionInterval is the interval from first to last, both included.
type transactionInterval struct{ first, last int64 }

// String formats the set as the server does, without line breaks.
func (s Set) String() string {
	var b strings.Builder
	for at, r := range s.bySource {
		if at == 0 || s.bySource[at-1].uuid != r.uuid { // All tags of a server follow its UUID, which is written only once.
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

// MarshalText implements encoding.TextMarshaler.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Set) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	*s = parsed
	return err
}

// IsEmpty reports whether the set has no transaction.
func (s Set) IsEmpty() bool { return len(s.bySource) == 0 }

// Count returns the number of transactions.
func (s Set) Count() int64 {
	var n int64
	for _, r := range s.bySource {
		for _, i := range r.intervals {
			n += i.last - i.first + 1
		}
	}
	return n
}

// Equal reports whether both sets have the same transactions.
func (s Set) Equal(other Set) bool {
	return slices.EqualFunc(s.bySource, other.bySource, func(a, b sourceIntervals) bool {
		return a.sourceTag == b.sourceTag && slices.Equal(a.intervals, b.intervals)
	})
}

// Contains reports whether every transaction of other is in s.
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

// Union returns the transactions that are in s, in other or in both.
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

// Subtract returns the transactions that are in s and not in other.
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

// NumberedBy returns the transactions whose GTIDs contain the given server UUID, with or without a tag.
func (s Set) NumberedBy(uuid string) Set {
	return s.filterSources(func(r sourceIntervals) bool { return r.uuid == strings.ToLower(uuid) })
}

// NotNumberedBy returns the transactions whose GTIDs contain another server UUID.
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

// The functions below work on sorted intervals that neither overlap nor touch.

// normalizeIntervals sorts intervals and joins those that overlap or touch.
func normalizeIntervals(list []transactionInterval) []transactionInterval {
	slices.SortFunc(list, func(a, b transactionInterval) int { return cmp.Compare(a.first, b.first) })
	out := list[:0] // out is never longer than the part of list that the loop has read, so both can share memory.
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

func subtractIntervals(a, b []transactionInterval) []transactionInterval {
	var left []transactionInterval
	at := 0
	for _, i := range a {
		for at < len(b) && b[at].last < i.first {
			at++
		}
		// The inner loop does not change the index at, because an interval of b that overlaps i may also overlap the
		// next interval of a.
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

const (
	uuidLength = 36
	maxTag     = 32
	// maxNumber is the largest number that the server assigns.
	maxNumber = 1<<63 - 2
)

// Parse parses a set in the format in which the server prints it, such as
//
//	3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:7:tag:1-5,
//	4e11fa47-71ca-11e1-9e33-c80aa9429562:1
//
// UUIDs may be in any order and in upper or lower case, with spaces and line breaks.
func Parse(text string) (Set, error) {
	found := map[sourceTag][]transactionInterval{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if err := parsePart(part, found); err != nil {
			return Set{}, fmt.Errorf("parse GTID set: %w", err)
		}
	}
	var s Set
	for from, list := range found {
		s.bySource = append(s.bySource, sourceIntervals{from, normalizeIntervals(list)})
	}
	slices.SortFunc(s.bySource, func(a, b sourceIntervals) int { return a.compare(b.sourceTag) })
	return s, nil
}

// parsePart parses the text between two commas: a UUID, followed by intervals, some of which follow tags.
func parsePart(part string, found map[sourceTag][]transactionInterval) error {
	fields := strings.Split(part, ":")
	for i, f := range fields {
		fields[i] = strings.ToLower(strings.TrimSpace(f))
	}
	if !isUUID(fields[0]) || len(fields) == 1 {
		return fmt.Errorf("expected a UUID and intervals such as uuid:1-5:8, found %q", part)
	}
	from, used := sourceTag{uuid: fields[0]}, true
	for _, f := range fields[1:] {
		if isTag(f) {
			if from.tag != "" && !used {
				return fmt.Errorf("expected an interval after the tag %q, found %q", from.tag, f)
			}
			from.tag, used = f, false
			continue
		}
		i, err := parseInterval(f)
		if err != nil {
			return err
		}
		found[from], used = append(found[from], i), true
	}
	if !used {
		return fmt.Errorf("expected an interval after the tag %q, found nothing", from.tag)
	}
	return nil
}

func parseInterval(text string) (transactionInterval, error) {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	first, okFirst := parseNumber(low)
	last, okLast := parseNumber(high)
	if !okFirst || !okLast || last < first {
		return transactionInterval{}, fmt.Errorf("expected an interval such as 7 or 1-5, found %q", text)
	}
	return transactionInterval{first, last}, nil
}

func parseNumber(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 1 && n <= maxNumber && text[0] != '+'
}

func isUUID(text string) bool {
	if len(text) != uuidLength {
		return false
	}
	for i, c := range []byte(text) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// isTag reports whether a field is a tag: a letter or underscore, then letters, underscores and digits.
func isTag(text string) bool {
	if text == "" || len(text) > maxTag || text[0] >= '0' && text[0] <= '9' {
		return false
	}
	for _, c := range []byte(text) {
		if c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
