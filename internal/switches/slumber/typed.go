// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"fmt"
	"slices"
	"strings"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// ParseSleep returns the window between two times of day that a user types, such as 19:00-7:00. The days are a
// day-of-week field of cron.
func ParseSleep(text, days string) (w torporv1alpha1.SlumberWindow, err error) {
	from, to, _ := strings.Cut(text, "-")
	sleep, isTime := parseTimeOfDay(from)
	wake, isAlsoTime := parseTimeOfDay(to)
	if !isTime || !isAlsoTime || sleep == wake {
		return w, fmt.Errorf("expected two times of day such as 19:00-7:00, found %q", text)
	}
	return torporv1alpha1.SlumberWindow{Sleep: sleep + " * * " + days, Wake: wake + " * * " + days}, nil
}

// parseTimeOfDay returns the minute and hour fields of cron for a time of day.
func parseTimeOfDay(text string) (string, bool) {
	at, err := time.Parse("15:04", strings.TrimSpace(text))
	return fmt.Sprintf("%d %d", at.Minute(), at.Hour()), err == nil
}

// ParseDays converts days of the week that a user types to a field of cron. It accepts names such as Mon and Monday,
// ranges, lists, and *.
func ParseDays(text string) (string, error) {
	if text == "*" {
		return text, nil
	}
	var names []string
	for day := range time.Saturday + 1 {
		names = append(names, strings.ToUpper(day.String()))
	}
	var parts []string
	for part := range strings.SplitSeq(strings.ToUpper(text), ",") {
		var ends []string
		for end := range strings.SplitSeq(part, "-") {
			end = strings.TrimSpace(end)
			i := slices.IndexFunc(names, func(name string) bool { return end == name || end == name[:3] })
			if i < 0 {
				return "", fmt.Errorf("expected days such as Mon-Fri or Sat,Sun, found %q", text)
			}
			ends = append(ends, names[i][:3])
		}
		if len(ends) > 2 {
			return "", fmt.Errorf("expected days such as Mon-Fri or Sat,Sun, found %q", text)
		}
		parts = append(parts, strings.Join(ends, "-"))
	}
	return strings.Join(parts, ","), nil
}
