// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"slices"
	"strconv"
	"strings"
)

const (
	// weekdayField is the index of the day of the week in a cron expression.
	weekdayField = 4
	// saturday is the last day of the week that the cron parser accepts. Cron itself also accepts 7 for Sunday.
	saturday, sundayAgain = 6, 7
	daysPerWeek           = 7
)

// expandWeekdays rewrites a day-of-week field for the cron parser: 7 becomes 0, and ranges that wrap from Saturday
// to Sunday become lists. An element that it cannot read is not changed, and the parser rejects it.
func expandWeekdays(text string) string {
	fields := strings.Fields(text)
	if len(fields) != weekdayField+1 {
		return text
	}
	parts := strings.Split(fields[weekdayField], ",")
	for i, part := range parts {
		parts[i] = expandWeekdayRange(part)
	}
	fields[weekdayField] = strings.Join(parts, ",")
	return strings.Join(fields, " ")
}

// expandWeekdayRange expands one element of a list: a day, a range, or a range with a step.
func expandWeekdayRange(part string) string {
	days, step, hasStep := strings.Cut(part, "/")
	from, to, isRange := strings.Cut(days, "-")
	first, last := readWeekday(from), readWeekday(to)
	size := 1
	if hasStep {
		size, _ = strconv.Atoi(step) // After an error, size is 0, which is not a valid step.
	}
	switch {
	case first == sundayAgain && !isRange && !hasStep:
		return "0"
	case !isRange || first < 0 || last < 0 || size < 1 || first <= last && last <= saturday:
		return part
	}
	if first == sundayAgain {
		first, last = 0, last%daysPerWeek
	}
	if last < first {
		last += daysPerWeek
	}
	var list []string
	size = min(size, daysPerWeek+1) // A longer step also selects only the first day; without this limit, the sum could overflow.
	for day := first; day <= last; day += size {
		list = append(list, strconv.Itoa(day%daysPerWeek))
	}
	return strings.Join(list, ",")
}

// readWeekday returns the number of a day of the week, from 0 to 7, or -1 if the text is not one.
func readWeekday(text string) int {
	names := []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	if day := slices.Index(names, strings.ToLower(text)); day >= 0 {
		return day
	}
	if day, err := strconv.Atoi(text); err == nil && day >= 0 && day <= sundayAgain {
		return day
	}
	return -1
}
