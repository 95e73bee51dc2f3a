// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// morning is the hour that is used for a day without a time, and evening is the hour of the word tonight.
	morning, evening = 8, 20
	// maxDays is the maximum number of days that can be typed: ten years.
	maxDays = 3650
)

// ParseNewUntil parses the end of a stop that a user types: a future time, a duration from now, or a word such as
// tomorrow. Days and times without a zone are in the time zone of now.
func ParseNewUntil(text string, now time.Time) (time.Time, error) {
	until, err := parseTyped(text, now)
	if err != nil {
		return time.Time{}, err
	}
	if !until.After(now) {
		return time.Time{}, fmt.Errorf("expected a time in the future, found %s, which has passed; choose a later one, such as tomorrow or 8h",
			until.UTC().Format(time.RFC3339))
	}
	return until, nil
}

// IsAnnotationTime reports whether an annotation can hold the text: an RFC 3339 time, or a positive duration in Go's
// format.
func IsAnnotationTime(text string) bool {
	_, err := ParseUntil(text, time.Time{})
	return err == nil
}

func parseTyped(text string, now time.Time) (time.Time, error) {
	if len(text) <= maxUntil {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at, nil
		}
		if d, err := time.ParseDuration(text); err == nil {
			return now.Add(d), nil
		}
		if at, isKnown := parseWords(strings.Fields(strings.ToLower(text)), now); isKnown {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf(
		"expected a time such as 18:00, tomorrow, monday, 2026-11-30 or 2026-11-20T22:00:00Z, or a duration such as 40m or 3d, found %.40q", text)
}

// parseWords parses a day, a time of day, both, or a number of days or weeks.
func parseWords(words []string, now time.Time) (time.Time, bool) {
	switch len(words) {
	case 1:
		if days, isPeriod := parseDays(words[0]); isPeriod {
			return atWallClock(now.AddDate(0, 0, days), now.Hour(), now.Minute(), now), true
		}
		if hour, minute, isTime := parseTimeOfDay(words[0]); isTime {
			at := atWallClock(now, hour, minute, now)
			if !at.After(now) {
				at = atWallClock(dayAfter(now, 1), hour, minute, now)
			}
			return at, true
		}
		if words[0] == "tonight" {
			return atWallClock(now, evening, 0, now), true
		}
		day, isDay := parseDay(words[0], now)
		return atWallClock(day, morning, 0, now), isDay
	case 2:
		day, isDay := parseDay(words[0], now)
		hour, minute, isTime := parseTimeOfDay(words[1])
		return atWallClock(day, hour, minute, now), isDay && isTime
	default:
		return time.Time{}, false
	}
}

// parseDays parses a number of days or weeks, such as 3d and 2w.
func parseDays(word string) (int, bool) {
	number, unit := word[:len(word)-1], word[len(word)-1]
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return 0, false
	}
	days := int(n)
	if unit == 'w' {
		days *= 7
	}
	return days, (unit == 'd' || unit == 'w') && days <= maxDays
}

func parseTimeOfDay(word string) (hour, minute int, isTime bool) {
	at, err := time.Parse("15:04", word)
	return at.Hour(), at.Minute(), err == nil
}

// parseDay parses a date, tomorrow, or a weekday, which is never today.
func parseDay(word string, now time.Time) (time.Time, bool) {
	if word == "tomorrow" {
		return dayAfter(now, 1), true
	}
	for n := 1; n <= 7; n++ {
		day := dayAfter(now, n)
		if name := strings.ToLower(day.Weekday().String()); word == name || word == name[:3] {
			return day, true
		}
	}
	day, err := time.Parse(time.DateOnly, word)
	return day, err == nil && day.Sub(now) <= maxDays*24*time.Hour
}

// dayAfter returns noon of the day that is a number of days after now. Noon exists on every day in every time zone.
func dayAfter(now time.Time, days int) time.Time {
	year, month, day := now.Date()
	return time.Date(year, month, day+days, 12, 0, 0, 0, now.Location())
}

// atWallClock returns the instant with a local time of day on a date, in the time zone of now. If the local time occurs
// twice, it returns the first instant, or the second one if the first has passed. A local time that a clock change
// skips is moved forward: 02:30 becomes 03:30.
func atWallClock(date time.Time, hour, minute int, now time.Time) time.Time {
	year, month, day := date.Date()
	wall := time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	_, before := wall.Add(-24 * time.Hour).In(now.Location()).Zone()
	_, after := wall.Add(24 * time.Hour).In(now.Location()).Zone()
	first := wall.Add(-time.Duration(before) * time.Second).In(now.Location())
	second := wall.Add(-time.Duration(after) * time.Second).In(now.Location())
	isFirst, isSecond := shows(first, wall), shows(second, wall)
	switch {
	case isFirst && isSecond && second.Before(first): // Both instants show the time of day: sort them.
		first, second = second, first
	case isSecond && !isFirst:
		return second
	case !isSecond:
		return first
	}
	if !first.After(now) {
		return second
	}
	return first
}

// shows reports whether the local time of an instant is the wall-clock time.
func shows(at, wall time.Time) bool {
	return at.Hour() == wall.Hour() && at.Minute() == wall.Minute() && at.Day() == wall.Day()
}
