// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	timelineDays = 7
	daySeconds   = 24 * 60 * 60
	weekSeconds  = timelineDays * daySeconds
)

// timeSpan is a period in Unix seconds.
type timeSpan struct{ from, to int64 }

// stopHistory contains the periods in which an object was requested to be stopped, as far as its record goes back.
type stopHistory struct {
	// stops contains the stops that have ended, sorted and without overlaps.
	stops []timeSpan
	// stoppedSince is the start of the current stop. It is 0 if none exists.
	stoppedSince int64
	// recordedFrom is the time before which stops may be missing. It is 0 if no stops are missing.
	recordedFrom int64
}

// newStopHistory returns the history of a row's manual stops and stops by Slumbers.
func newStopHistory(r kinds.Row) stopHistory {
	var h stopHistory
	for _, stop := range slices.Concat(r.Stops, r.PastScheduled) {
		since := stop.Since.Unix()
		switch {
		case stop.EndedAt != nil && stop.EndedAt.Unix() > since:
			h.stops = append(h.stops, timeSpan{since, stop.EndedAt.Unix()})
		case stop.EndedAt == nil && (h.stoppedSince == 0 || since < h.stoppedSince):
			h.stoppedSince = since
		}
	}
	h.stops = joinSpans(h.stops)
	if len(r.Stops) >= stoprecord.MaxRecords {
		h.recordedFrom = oldestStop(r.Stops)
	}
	if len(r.PastScheduled) >= stoprecord.MaxScheduled {
		h.recordedFrom = max(h.recordedFrom, oldestStop(r.PastScheduled))
	}
	return h
}

func oldestStop(stops []torporv1alpha1.StopRecord) int64 {
	return slices.MinFunc(stops, func(a, b torporv1alpha1.StopRecord) int { return a.Since.Compare(b.Since.Time) }).Since.Unix()
}

// joinSpans sorts spans and joins overlapping ones, because a user and a Slumber may stop an object at the same time.
func joinSpans(spans []timeSpan) (joined []timeSpan) {
	slices.SortFunc(spans, func(a, b timeSpan) int { return cmp.Compare(a.from, b.from) })
	for _, one := range spans {
		if last := len(joined) - 1; last >= 0 && one.from <= joined[last].to {
			joined[last].to = max(joined[last].to, one.to)
			continue
		}
		joined = append(joined, one)
	}
	return joined
}

// findStops returns the stops within a period.
func (h stopHistory) findStops(in timeSpan) []timeSpan {
	all := slices.Clone(h.stops)
	if h.stoppedSince != 0 {
		all = append(all, timeSpan{h.stoppedSince, in.to})
	}
	for i := range all {
		all[i] = timeSpan{max(all[i].from, in.from), min(all[i].to, in.to)}
	}
	return joinSpans(slices.DeleteFunc(all, func(s timeSpan) bool { return s.to <= s.from }))
}

func sumSeconds(spans []timeSpan) (sum int64) {
	for _, s := range spans {
		sum += s.to - s.from
	}
	return sum
}

// timelineView is the content of the timeline for one caller: today and the six previous days, in UTC.
type timelineView struct {
	view
	Days []string
	Rows []timelineRow
	// Sums contains the hours of all matching objects, by namespace.
	Sums []namespaceSum
}

type timelineRow struct {
	rowView
	Bars []bar
	// Hours is the number of hours in which the object was requested to be stopped.
	Hours string
	// Text describes the bars for screen readers.
	Text string
}

// bar is a part of a row, in seconds from its left end.
type bar struct {
	Class       string
	Left, Width int64
}

type namespaceSum struct {
	Namespace string
	Objects   int
	Hours     string
	seconds   int64
}

// maxSums limits the number of namespaces or owners in a table of sums. Those with the largest sums come first.
const maxSums = 50

// composeTimeline returns the timeline for the rows of a view, with the sums for all its matching objects.
func composeTimeline(selected view, now time.Time) timelineView {
	v := timelineView{view: selected}
	today := now.UTC().Truncate(daySeconds * time.Second)
	week := timeSpan{today.AddDate(0, 0, 1-timelineDays).Unix(), now.Unix()}
	for day := range timelineDays {
		v.Days = append(v.Days, today.AddDate(0, 0, day+1-timelineDays).Format("Mon 2 Jan"))
	}
	sums := map[string]*namespaceSum{}
	for _, s := range selected.matching {
		sum := sums[s.Namespace]
		if sum == nil {
			sum = &namespaceSum{Namespace: s.Namespace}
			sums[s.Namespace] = sum
		}
		sum.Objects++
		sum.seconds += sumSeconds(s.history.findStops(week))
	}
	for _, r := range v.view.Rows {
		v.Rows = append(v.Rows, newTimelineRow(r, week))
	}
	for _, sum := range slices.SortedFunc(maps.Values(sums), compareSums) {
		if len(v.Sums) < maxSums && sum.seconds > 0 {
			sum.Hours = formatHours(hoursOf(sum.seconds))
			v.Sums = append(v.Sums, *sum)
		}
	}
	return v
}

func compareSums(a, b *namespaceSum) int {
	return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.Namespace, b.Namespace))
}

func hoursOf(seconds int64) float64 { return float64(seconds) / time.Hour.Seconds() }

// newTimelineRow returns the bars for an object. The time before the beginning of its record is shown as unknown.
func newTimelineRow(r rowView, week timeSpan) timelineRow {
	row, h := timelineRow{rowView: r}, r.history
	stops := h.findStops(week)
	row.Hours = formatHours(hoursOf(sumSeconds(stops)))
	if h.recordedFrom > week.from {
		row.Bars = append(row.Bars, bar{"unknown", 0, min(h.recordedFrom, week.to) - week.from})
	}
	row.Bars = append(row.Bars, bar{"ahead", week.to - week.from, weekSeconds - (week.to - week.from)})
	var texts []string
	for i, s := range stops {
		class, end := "stopped", formatMinute(s.to)
		if i == len(stops)-1 && h.stoppedSince != 0 {
			class, end = r.Badge, "now"
		}
		row.Bars = append(row.Bars, bar{class, s.from - week.from, s.to - s.from})
		texts = append(texts, formatMinute(s.from)+" to "+end)
	}
	row.Text = "No stop was requested"
	if len(texts) > 0 {
		row.Text = "Requested stops: " + strings.Join(texts, "; ")
	}
	if h.recordedFrom > week.from {
		row.Text += fmt.Sprintf("; the record begins on %s", formatMinute(h.recordedFrom))
	}
	return row
}

func formatMinute(at int64) string { return time.Unix(at, 0).UTC().Format("Mon 15:04") }
