// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

const (
	// maxChoices limits the number of namespaces in the select element. Other namespaces can be set in the address.
	maxChoices = 300
	// sumLength is the number of bytes of the checksum that distinguishes two versions of a row or of another part.
	sumLength = 8
)

// view is the content of the page for one caller.
type view struct {
	Query viewQuery
	User  string
	Rows  []rowView
	// Matching is the number of matching rows on all pages. Pages is the number of pages.
	Matching, Pages int
	Summary         summaryView
	Columns         []columnView
	Kinds           []string
	Namespaces      []string
	Warnings        []string
	// matching contains the matching switches on all pages, and shown contains the switches on this page. withButton
	// contains Rows with their buttons, for which a caller needs rights; the entry of a row without a button is empty.
	matching, shown []*listedSwitch
	withButton      []rowView
}

// FirstRow is the number of the first row on this page.
func (v view) FirstRow() int { return (v.Query.Page-1)*rowsPerPage + 1 }

// LastRow is the number of the last row on this page.
func (v view) LastRow() int { return (v.Query.Page-1)*rowsPerPage + len(v.Rows) }

// PreviousPage returns the query for the previous page.
func (v view) PreviousPage() viewQuery { return v.Query.onPage(v.Query.Page - 1) }

// NextPage returns the query for the next page.
func (v view) NextPage() viewQuery { return v.Query.onPage(v.Query.Page + 1) }

// summaryView counts all switches that the caller may see, regardless of the filter.
type summaryView struct {
	Total, Stopped, Changing, Stuck, Overdue int
	// SavedHours is the sum of the machine-hours since Monday, 00:00 UTC. Unknown is the number of hibernating clusters
	// with unknown savings.
	SavedHours string
	Unknown    int
}

type columnView struct {
	Title string
	// Link is the address that sorts by the column. It is empty if the column cannot be sorted. AriaSort is the current
	// order.
	Link, AriaSort string
}

type rowView struct {
	Key, Sum                          string
	Kind, APIGroup, KindName          string
	Namespace, Name, Title, Part      string
	State, Badge, Symbol              string
	Stopped                           bool
	Since, Until                      *timeView
	By, Reason, UntilBy, Next, Detail string
	IsStuck, IsOverdue, StartsItself  bool
	Saved, SavedNote                  string
	// Verb is the action of the button. It is empty if there is no button.
	Verb string
	// history is shown in the timeline.
	history stopHistory
	// html renders the row of the list.
	html func() markup
}

// timeView is a time in a format for users and in a format for programs.
type timeView struct{ Machine, Human string }

func newTimeView(at *metav1.Time) *timeView {
	if at == nil {
		return nil
	}
	utc := at.UTC()
	return &timeView{Machine: utc.Format(time.RFC3339), Human: utc.Format("2006-01-02 15:04 UTC")}
}

// composeView filters, counts and sorts the switches, and selects one page with its buttons.
func composeView(ctx context.Context, all *inventory, sees *visibility, q viewQuery, now time.Time) view {
	return selectView(all, sees, q, now).withButtons(ctx, sees)
}

// withButtons returns the view with the buttons for which the caller has the rights.
func (v view) withButtons(ctx context.Context, sees *visibility) view {
	v.Rows = slices.Clone(v.Rows)
	for i, s := range v.shown {
		if v.withButton[i].Verb != "" && sees.mayPatch(ctx, s) {
			v.Rows[i] = v.withButton[i]
		}
	}
	return v
}

// addButton returns a row with its button, or an empty row if no action applies.
func (r rowView) addButton(s *listedSwitch) rowView {
	verbs := listVerbs(s)
	if len(verbs) == 0 {
		return rowView{}
	}
	r.Verb = verbs[0]
	if strings.HasPrefix(r.Next, "kubectl ") { // The button replaces the command.
		r.Next = ""
	}
	r.Next = strings.TrimSuffix(r.Next, ", or now by "+s.SkipCommand())
	return r.complete()
}

// complete returns a row with its checksum and its HTML, which is rendered lazily and only once.
func (r rowView) complete() rowView {
	r.Sum = sumOf(r)
	r.html = sync.OnceValue(func() markup { return renderRow(r) })
	return r
}

// selectView is composeView without the buttons, which depend on the rights of the caller.
func selectView(all *inventory, sees *visibility, q viewQuery, now time.Time) view {
	v := view{Query: q, Kinds: listKindNames(all, sees), Columns: listColumns(q)}
	namespaces := map[string]bool{}
	var saved float64
	acting, gaps := all.readActing(), gapReasons{}
	for _, s := range all.listSwitches(sees.isVisible) {
		s = s.withGap(acting)
		gaps.add(s)
		namespaces[s.Namespace] = true
		v.Summary.count(s, now)
		saved += s.savings.WeekMachineHours(now)
		if q.isAbout(s) && q.hasState(s, now) {
			v.matching = append(v.matching, s)
		}
	}
	v.Summary.SavedHours = formatHours(saved)
	v.Namespaces = slices.Sorted(maps.Keys(namespaces))
	v.Namespaces = v.Namespaces[:min(len(v.Namespaces), maxChoices)]
	q.sortSwitches(v.matching, now)
	v.Matching, v.Pages = len(v.matching), max(1, (len(v.matching)+rowsPerPage-1)/rowsPerPage)
	v.Query.Page = min(q.Page, v.Pages)
	begin := (v.Query.Page - 1) * rowsPerPage
	v.shown = v.matching[begin:min(begin+rowsPerPage, v.Matching)]
	for _, s := range v.shown {
		r := newRowView(s, now)
		v.Rows, v.withButton = append(v.Rows, r.complete()), append(v.withButton, r.addButton(s))
	}
	v.Warnings = append(gaps.list(acting), listWarnings(all.listGaps(), sees)...)
	return v
}

func (s *summaryView) count(l *listedSwitch, now time.Time) {
	s.Total++
	if l.Stopped {
		s.Stopped++
	}
	if l.IsChanging() {
		s.Changing++
	}
	if l.IsStuck() {
		s.Stuck++
	}
	if l.IsOverdue(now) {
		s.Overdue++
	}
	if _, isKnown := l.savings.MachineHours(now); l.savings.HasMachines && l.State == "Hibernating" && !isKnown {
		s.Unknown++
	}
}

func listWarnings(gaps inventoryGaps, sees *visibility) []string {
	var warnings []string
	// Do not list the namespaces, because the caller may not be allowed to see all of them.
	for at, why := range gaps.unseen {
		if why != notInstalled {
			warnings = append(warnings, at.kind+": "+why)
		}
	}
	slices.Sort(warnings)
	warnings = slices.Compact(warnings)
	for _, kind := range gaps.crowded {
		if sees.seesSomeOf(kind) {
			warnings = append(warnings, fmt.Sprintf("%s: only %d objects that are or were stopped are shown, and there are more; kubectl torpor status lists all of them", kind, maxForeignRows))
		}
	}
	if gaps.unwatched > 0 {
		warnings = append(warnings, fmt.Sprintf("StopAdapters: only objects of the first %d by name are shown, and there are %d more StopAdapters; kubectl torpor status lists the objects of all", maxForeignKinds, gaps.unwatched))
	}
	if sees.unreviewed > 0 {
		warnings = append(warnings, fmt.Sprintf("You may not list all namespaces, and the page checks a limited number of namespaces: %d namespaces were not checked. Choose a namespace.", sees.unreviewed))
	}
	return warnings
}

// listKindNames returns the kinds for the filter. StopAdapter kinds are listed only if the caller may see some of their
// objects.
func listKindNames(all *inventory, sees *visibility) []string {
	var names []string
	for _, k := range all.listKinds() {
		if !k.IsForeign() || sees.seesSomeOf(k.Name()) {
			names = append(names, k.Name())
		}
	}
	return names
}

func listColumns(q viewQuery) []columnView {
	titles := []struct{ title, sort string }{
		{"Name", "name"},
		{"State", "state"},
		{"Since", "since"},
		{"By", "by"},
		{"Why", ""},
		{"Until", "until"},
		{"Next step", ""},
		{"Machine-hours", "saved"},
		{"Switch", ""},
	}
	var columns []columnView
	for _, t := range titles {
		c := columnView{Title: t.title}
		if t.sort != "" {
			c.Link = "?" + q.sortedBy(t.sort).encode()
			c.AriaSort = "none"
		}
		if t.sort != "" && t.sort == q.Sort {
			c.AriaSort = map[bool]string{true: "descending", false: "ascending"}[q.IsDescending]
		}
		columns = append(columns, c)
	}
	return columns
}

func newRowView(s *listedSwitch, now time.Time) rowView {
	r := rowView{
		Key: s.key, Kind: s.Kind, APIGroup: s.APIGroup, KindName: s.kind.Name(),
		Namespace: s.Namespace, Name: s.Name, Title: s.title, Part: s.Part, State: s.State, Stopped: s.Stopped,
		Since: newTimeView(s.Since), Until: newTimeView(s.Until), By: s.By, Reason: s.Reason, Next: s.NextAt(now),
		IsStuck: s.IsStuck(), IsOverdue: s.IsOverdue(now), StartsItself: s.NextAt(now) == stoprecord.StartsByItself,
		history: s.history,
	}
	if s.UntilBy != s.By {
		r.UntilBy = s.UntilBy
	}
	if r.StartsItself {
		r.Next = ""
	}
	if s.Message != "" && !strings.Contains(r.Next, s.Message) {
		r.Detail = s.Message
	}
	switch {
	case r.IsStuck:
		r.Badge, r.Symbol = "stuck", "!"
	case s.IsChanging():
		r.Badge, r.Symbol = "changing", "↻"
	case s.Stopped:
		r.Badge, r.Symbol = "stopped", "◼"
	default:
		r.Badge, r.Symbol = "running", "▶"
	}
	r.Saved, r.SavedNote = describeSavings(s, now)
	return r
}

func describeSavings(s *listedSwitch, now time.Time) (saved, note string) {
	hours, isKnown := s.savings.MachineHours(now)
	switch {
	case !s.savings.HasMachines:
		return "", ""
	case isKnown && s.savings.IsOngoing():
		return formatHours(hours), fmt.Sprintf("%d machines off", s.savings.Machines)
	case isKnown:
		return formatHours(hours), fmt.Sprintf("%d machines in the last hibernation", s.savings.Machines)
	case s.Stopped:
		return "not known", ""
	default:
		return "", ""
	}
}

// formatHours formats hours precisely enough to show growth, and coarsely enough not to change at every update.
func formatHours(hours float64) string {
	if hours < 100 {
		return strconv.FormatFloat(hours, 'f', 1, 64)
	}
	return groupDigits(strconv.FormatFloat(hours, 'f', 0, 64))
}

// groupDigits inserts separators between the thousands of a whole number.
func groupDigits(text string) string {
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// sumOf returns a checksum that distinguishes two versions of a row.
func sumOf(r rowView) string {
	text, _ := json.Marshal(r) // A row contains only types that can be encoded.
	return checksum(text)
}

// checksum returns a short checksum of a text.
func checksum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:sumLength])
}
