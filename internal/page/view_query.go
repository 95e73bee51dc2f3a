// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	// rowsPerPage limits the number of rows on a page.
	rowsPerPage = 100
	// maxQueryText limits the length of the search text.
	maxQueryText = 200
)

// viewQuery selects and orders the switches on a page. It is encoded in the query of the page's address.
type viewQuery struct {
	// Text holds words that must all occur in the row, for example in the name, the requester or the message. Case is
	// ignored.
	Text string
	// Kind is the name of the selected kind, and Namespace the selected namespace. An empty value means all.
	Kind, Namespace string
	// State is one of viewStates. An empty value means all.
	State string
	// Sort is a column. If it is empty, switches that need attention come first.
	Sort         string
	IsDescending bool
	// Page is the page number, starting at 1.
	Page int
}

func sortableColumns() []string { return []string{"name", "state", "since", "by", "until", "saved"} }

func viewStates() []string {
	return []string{"stopped", "changing", "stuck", "running", "overdue", "saving"}
}

// parseViewQuery ignores unsupported values, so every address shows a page.
func parseViewQuery(values url.Values) viewQuery {
	q := viewQuery{Text: clip(strings.TrimSpace(values.Get("q"))), Kind: clip(values.Get("kind")), Namespace: clip(values.Get("namespace")), Page: 1}
	if state := values.Get("state"); slices.Contains(viewStates(), state) {
		q.State = state
	}
	if column, isDescending := strings.CutPrefix(values.Get("sort"), "-"); slices.Contains(sortableColumns(), column) {
		q.Sort, q.IsDescending = column, isDescending
	}
	if n, err := strconv.Atoi(values.Get("page")); err == nil && n > 0 {
		q.Page = n
	}
	return q
}

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxQueryText)], "") }

// encode returns the query without default values.
func (q viewQuery) encode() string {
	values := url.Values{}
	set := func(name, value string) {
		if value != "" {
			values.Set(name, value)
		}
	}
	set("q", q.Text)
	set("kind", q.Kind)
	set("namespace", q.Namespace)
	set("state", q.State)
	if q.Sort != "" {
		set("sort", map[bool]string{true: "-"}[q.IsDescending]+q.Sort)
	}
	if q.Page > 1 {
		set("page", strconv.Itoa(q.Page))
	}
	return values.Encode()
}

// Encoded returns the query without default values.
func (q viewQuery) Encoded() string { return q.encode() }

func (q viewQuery) onPage(page int) viewQuery {
	q.Page = page
	return q
}

// InState returns the query for another state.
func (q viewQuery) InState(state string) viewQuery {
	q.State, q.Page = state, 1
	return q
}

// sortedBy returns the query after a click on a column heading. Each click changes the order: to ascending, then to
// descending, then to the default.
func (q viewQuery) sortedBy(column string) viewQuery {
	switch {
	case q.Sort != column:
		q.Sort, q.IsDescending = column, false
	case !q.IsDescending:
		q.IsDescending = true
	default:
		q.Sort, q.IsDescending = "", false
	}
	q.Page = 1
	return q
}

// isAbout reports whether the kind, namespace and text of the query match the switch, regardless of its state.
func (q viewQuery) isAbout(s *listedSwitch) bool {
	if q.Kind != "" && s.kind.Name() != q.Kind || q.Namespace != "" && s.Namespace != q.Namespace {
		return false
	}
	if q.Text == "" {
		return true
	}
	words := strings.ToLower(strings.Join([]string{
		s.Kind, s.APIGroup, s.Namespace, s.Name, s.DisplayName, s.Part, s.State, s.By, s.Reason, s.Next, s.Message,
	}, " "))
	for word := range strings.FieldsSeq(strings.ToLower(q.Text)) {
		if !strings.Contains(words, word) {
			return false
		}
	}
	return true
}

func (q viewQuery) hasState(s *listedSwitch, now time.Time) bool {
	switch q.State {
	case "stopped":
		return s.Stopped
	case "changing":
		return s.IsChanging()
	case "stuck":
		return s.IsStuck()
	case "running":
		return !s.IsStuck() && !s.IsChanging() && !s.Stopped
	case "overdue":
		return s.IsOverdue(now)
	case "saving":
		_, isKnown := s.savings.MachineHours(now)
		return isKnown && s.savings.IsOngoing()
	default:
		return true
	}
}

// sortSwitches sorts the switches as requested. Switches without a value in the column come last in both directions.
func (q viewQuery) sortSwitches(all []*listedSwitch, now time.Time) {
	ranked := make([]rankedSwitch, 0, len(all))
	for _, s := range all {
		ranked = append(ranked, rankedSwitch{s, s.Attention(now)})
	}
	slices.SortFunc(ranked, func(a, b rankedSwitch) int {
		if order := q.compare(a, b, now); order != 0 {
			return order
		}
		return compareNames(a.listedSwitch, b.listedSwitch)
	})
	for i, s := range ranked {
		all[i] = s.listedSwitch
	}
}

// rankedSwitch is a switch with its sort rank, which is computed only once per sort.
type rankedSwitch struct {
	*listedSwitch
	attention kinds.Attention
}

func (q viewQuery) compare(a, b rankedSwitch, now time.Time) int {
	switch q.Sort {
	case "name":
		return q.directed(compareNames(a.listedSwitch, b.listedSwitch))
	case "state":
		return q.directed(cmp.Compare(a.State, b.State))
	case "since":
		return q.compareTimes(a.Since, b.Since)
	case "until":
		return q.compareTimes(a.Until, b.Until)
	case "by":
		return cmp.Or(compareEmpty(a.By == "", b.By == ""), q.directed(cmp.Compare(a.By, b.By)))
	case "saved":
		one, isKnown := a.savings.MachineHours(now)
		other, isOtherKnown := b.savings.MachineHours(now)
		return cmp.Or(compareEmpty(!isKnown, !isOtherKnown), q.directed(cmp.Compare(one, other)))
	default:
		return cmp.Or(cmp.Compare(a.attention, b.attention), viewQuery{IsDescending: true}.compareTimes(a.Since, b.Since))
	}
}

func (q viewQuery) directed(order int) int {
	if q.IsDescending {
		return -order
	}
	return order
}

func (q viewQuery) compareTimes(a, b *metav1.Time) int {
	if a == nil || b == nil {
		return compareEmpty(a == nil, b == nil)
	}
	return q.directed(a.Compare(b.Time))
}

func compareEmpty(isEmpty, isOtherEmpty bool) int {
	switch {
	case isEmpty == isOtherEmpty:
		return 0
	case isEmpty:
		return 1
	default:
		return -1
	}
}

// compareNames stops at the first difference, because it takes most of the time of a sort of thousands of switches.
func compareNames(a, b *listedSwitch) int {
	if order := cmp.Compare(a.title, b.title); order != 0 {
		return order
	}
	if order := cmp.Compare(a.Name, b.Name); order != 0 {
		return order
	}
	if order := cmp.Compare(a.Namespace, b.Namespace); order != 0 {
		return order
	}
	return cmp.Compare(a.key, b.key) // Only the kind and the part can differ here.
}
