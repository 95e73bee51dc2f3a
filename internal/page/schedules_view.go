// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

const (
	// schedulesPerPage limits the number of schedules on one page.
	schedulesPerPage = 20
	// maxDayPhases limits the number of a day's sleeps that are shown as text. maxWindows limits the number of a
	// schedule's windows that are shown.
	maxDayPhases, maxWindows = 6, 5
	minutesPerDay            = 24 * 60
)

// scheduleQuery selects schedules. It is encoded in the address.
type scheduleQuery struct {
	Text, Namespace string
	Page            int
}

func parseScheduleQuery(values url.Values) scheduleQuery {
	q := scheduleQuery{Text: clip(values.Get("q")), Namespace: clip(values.Get("namespace"))}
	q.Page, _ = strconv.Atoi(values.Get("page"))
	q.Page = max(q.Page, 1)
	return q
}

// onPage returns the address of another page of the same query.
func (q scheduleQuery) onPage(page int) string {
	values := url.Values{}
	if q.Text != "" {
		values.Set("q", q.Text)
	}
	if q.Namespace != "" {
		values.Set("namespace", q.Namespace)
	}
	if page > 1 {
		values.Set("page", strconv.Itoa(page))
	}
	return "schedules?" + values.Encode()
}

// isAbout reports whether the query selects a schedule. A ClusterSlumber has no namespace.
func (q scheduleQuery) isAbout(l *listedSchedule) bool {
	if q.Namespace != "" && l.Namespace != q.Namespace {
		return false
	}
	words := strings.ToLower(strings.Join([]string{
		l.kind(), l.Namespace, l.Name, l.slumber.Spec.TimeZone, l.slumber.Spec.Reason, string(l.slumber.Status.State),
	}, " "))
	for word := range strings.FieldsSeq(strings.ToLower(q.Text)) {
		if !strings.Contains(words, word) {
			return false
		}
	}
	return true
}

// schedulesView is the content of the tab for one caller.
type schedulesView struct {
	Query           scheduleQuery
	User            string
	Schedules       []scheduleView
	Matching, Total int
	Pages           int
	Namespaces      []string
	Warnings        []string
	// Done and Problem are the result of a form. They are empty before a form is submitted.
	Done, Problem string
	Form          scheduleForm
}

type scheduleView struct {
	Kind, Namespace, Name string
	Sum                   string
	State, Badge, Symbol  string
	Since                 *timeView
	Zone, Reason          string
	Windows               []string
	// Invalid is the reason why the schedule is invalid. Stalled is the reason why it does not progress.
	Invalid, Stalled string
	IsSuspended      bool
	Week             []dayView
	Next             []changeView
	Members, Asleep  int32
	Waves            []waveView
}

// dayView is one day in the week grid. Bars are the sleeps of the day, in minutes. A day's length may differ from 24
// hours.
type dayView struct {
	Name, Text    string
	Length        int
	Bars          []barView
	Now           int
	IsNow         bool
	isWholeAsleep bool
}

type barView struct{ From, Width int }

type changeView struct {
	Verb string
	At   timeView
}

type waveView struct{ Name, Text string }

// composeSchedules filters and sorts the schedules, and selects one page.
func composeSchedules(seen seenSchedules, acting lease.Acting, q scheduleQuery, now time.Time) schedulesView {
	v := schedulesView{Query: q, Total: len(seen.all), Namespaces: seen.namespaces[:min(len(seen.namespaces), maxChoices)]}
	gaps := gapReasons{}
	var matching []*listedSchedule
	for _, l := range seen.all {
		if why := describeScheduleGap(acting, l); why != "" {
			gaps[why] = true
		}
		if q.isAbout(l) {
			matching = append(matching, l)
		}
	}
	slices.SortFunc(matching, func(a, b *listedSchedule) int {
		return cmp.Or(
			cmp.Compare(a.attention(), b.attention()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	v.Matching, v.Pages = len(matching), max(1, (len(matching)+schedulesPerPage-1)/schedulesPerPage)
	v.Query.Page = min(q.Page, v.Pages)
	begin := (v.Query.Page - 1) * schedulesPerPage
	for _, l := range matching[begin:min(begin+schedulesPerPage, len(matching))] {
		v.Schedules = append(v.Schedules, newScheduleView(l, now))
	}
	for _, why := range append(gaps.list(acting), seen.warnings...) {
		v.Warnings = append(v.Warnings, strings.ToUpper(why[:1])+why[1:])
	}
	return v
}

// attention returns the sort rank of a schedule: schedules that need a user's attention come first, followed by
// schedules that are falling asleep or waking up.
func (l *listedSchedule) attention() int {
	switch state := l.slumber.Status.State; {
	case l.invalidReason() != "":
		return 0
	case l.stalledReason() != "":
		return 1
	case state == torporv1alpha1.SlumberFallingAsleep || state == torporv1alpha1.SlumberWakingUp:
		return 2
	default:
		return 3
	}
}

// invalidReason returns the reason why the schedule is invalid, as reported by the controller or detected here.
func (l *listedSchedule) invalidReason() string {
	if l.err != nil {
		return l.err.Error()
	}
	if l.slumber.Status.State != torporv1alpha1.SlumberInvalid || l.slumber.Status.ObservedGeneration != l.Generation {
		return ""
	}
	return cmp.Or(l.stalledMessage(), "the controller reports no reason")
}

// stalledReason returns the reason why a valid schedule cannot progress without a user.
func (l *listedSchedule) stalledReason() string {
	if l.slumber.Status.State == torporv1alpha1.SlumberInvalid {
		return ""
	}
	return l.stalledMessage()
}

func (l *listedSchedule) stalledMessage() string {
	c := meta.FindStatusCondition(l.slumber.Status.Conditions, torporv1alpha1.SlumberStalledCondition)
	if c != nil && c.Status == metav1.ConditionTrue {
		return strings.TrimPrefix(c.Message, "Nothing is stopped or started: ")
	}
	return ""
}

func newScheduleView(l *listedSchedule, now time.Time) scheduleView {
	spec, status := l.slumber.Spec, l.slumber.Status
	v := scheduleView{
		Kind: l.kind(), Namespace: l.Namespace, Name: l.Name, Zone: l.zone(), Reason: spec.Reason,
		Since: newTimeView(status.Since), State: string(status.State), Invalid: l.invalidReason(), Stalled: l.stalledReason(), IsSuspended: spec.Suspend,
		Members: status.Members, Asleep: status.Asleep,
	}
	v.Badge, v.Symbol = "running", "▶"
	switch {
	case v.Invalid != "":
		v.State, v.Badge, v.Symbol = string(torporv1alpha1.SlumberInvalid), "stuck", "!"
	case status.State == "":
		v.State, v.Badge, v.Symbol, v.Since = "no controller has acted yet", "changing", "↻", nil
	case status.State == torporv1alpha1.SlumberAsleep:
		v.Badge, v.Symbol = "stopped", "◼"
	case status.State != torporv1alpha1.SlumberAwake:
		v.Badge, v.Symbol = "changing", "↻"
	}
	for _, w := range spec.Windows[:min(len(spec.Windows), maxWindows)] {
		v.Windows = append(v.Windows, "stop "+w.Sleep+", start "+w.Wake)
	}
	if more := len(spec.Windows) - maxWindows; more > 0 {
		v.Windows = append(v.Windows, fmt.Sprintf("and %d more", more))
	}
	if n := len(spec.Holidays); n > 0 {
		v.Windows = append(v.Windows, fmt.Sprintf("holidays: %d", n))
	}
	for _, w := range status.Waves {
		v.Waves = append(v.Waves, waveView{w.Name, describeWave(w)})
	}
	if v.Invalid == "" {
		v.Week = listDays(l.schedule, now)
		if !spec.Suspend {
			v.Next = listChanges(l.schedule, now)
		}
	}
	text, _ := json.Marshal(v) // A view contains only types that can be encoded.
	v.Sum = checksum(text)
	return v
}

// describeWave returns the counts of a wave, and the objects for which it waits.
func describeWave(w torporv1alpha1.SlumberWaveStatus) string {
	parts := []string{fmt.Sprintf("%d of %d stopped", w.Asleep, w.Members)}
	if w.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d kept awake", w.Skipped))
	}
	if w.WaitsFor != "" {
		parts = append(parts, "waits for "+w.WaitsFor)
	}
	if w.IsTimedOut {
		parts = append(parts, "the timeout of the wave has expired")
	}
	return strings.Join(parts, "; ")
}

// listChanges returns the next changes, in the time zone of the schedule.
func listChanges(s slumber.Schedule, now time.Time) (all []changeView) {
	for _, t := range s.NextTransitions(now) {
		c := changeView{Verb: "start", At: newLocalTimeView(s.Local(t.At.Time))}
		if t.To == torporv1alpha1.SlumberAsleep {
			c.Verb = "stop"
		}
		all = append(all, c)
	}
	return all
}

func newLocalTimeView(local time.Time) timeView {
	return timeView{Machine: local.UTC().Format(time.RFC3339), Human: local.Format(slumber.LocalTime)}
}

// listDays returns the seven days starting today.
func listDays(s slumber.Schedule, now time.Time) (all []dayView) {
	for _, d := range s.ListWeek(now) {
		v := dayView{Name: d.Start.Format("Mon 2 Jan"), Length: minutesBetween(d.Start, d.End)}
		if !now.Before(d.Start) && now.Before(d.End) {
			v.Now, v.IsNow = minutesBetween(d.Start, now), true
		}
		var sleeps []string
		for _, p := range d.Phases {
			if !p.IsAsleep {
				continue
			}
			v.Bars = append(v.Bars, barView{minutesBetween(d.Start, p.From), max(1, minutesBetween(p.From, p.To))})
			sleeps = append(sleeps, describePhase(d, p))
			v.isWholeAsleep = p.From.Equal(d.Start) && p.To.Equal(d.End)
		}
		v.Text = v.describe(d, sleeps)
		all = append(all, v)
	}
	return all
}

// describe returns a text that lists the sleeps of a day.
func (v dayView) describe(d slumber.WeekDay, sleeps []string) string {
	var parts []string
	switch more := len(sleeps) - maxDayPhases; {
	case v.isWholeAsleep:
		parts = append(parts, "all day")
	case more > 0:
		parts = append(parts, fmt.Sprintf("%s and %d more", strings.Join(sleeps[:maxDayPhases], ", "), more))
	case len(sleeps) > 0:
		parts = append(parts, strings.Join(sleeps, ", "))
	case !d.IsCut:
		parts = append(parts, "no sleep")
	}
	if d.IsCut {
		parts = append(parts, "too many changes to show")
	}
	if !d.HasAllHours() {
		hours := strconv.FormatFloat(d.End.Sub(d.Start).Hours(), 'f', -1, 64)
		parts = append(parts, fmt.Sprintf("the clocks change: the day has %s hours", hours))
	}
	return strings.Join(parts, "; ")
}

// describePhase returns the times of a phase. It includes the zone on a day on which the clocks change.
func describePhase(d slumber.WeekDay, p slumber.DayPhase) string {
	format := "15:04"
	if !d.HasAllHours() {
		format = "15:04 MST"
	}
	if p.To.Equal(d.End) {
		return p.From.Format(format) + "–24:00"
	}
	return p.From.Format(format) + "–" + p.To.Format(format)
}

func minutesBetween(from, to time.Time) int { return int(to.Sub(from) / time.Minute) }
