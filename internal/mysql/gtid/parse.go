// SPDX-License-Identifier: Apache-2.0

package gtid

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	uuidLength = 36
	maxTag     = 32
	// maxNumber is the server's last number.
	maxNumber = 1<<63 - 2
)

// Parse reads a set as the server prints it, such as
//
//	3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:7:tag:1-5,
//	4e11fa47-71ca-11e1-9e33-c80aa9429562:1
//
// in any order, with spaces, line breaks and either case.
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

// parsePart reads what stands between two commas: a UUID, then intervals, some of them behind tags.
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
				return fmt.Errorf("expected an interval behind the tag %q, found %q", from.tag, f)
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
		return fmt.Errorf("expected an interval behind the tag %q, found nothing", from.tag)
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
