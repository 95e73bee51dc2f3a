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
)

const (
	// rowsPerPage keeps a page small, whatever the number of objects is.
	rowsPerPage = 100
	// maxQueryText bounds what is searched for.
	maxQueryText = 200
)

// viewQuery is which switches somebody looks at, and in which order. It is the query of the page's address.
type viewQuery struct {
	// Text is in the name, namespace, requester, reason or message.
	Text string
	// Kind, by its name, and Namespace choose one; empty means all.
	Kind, Namespace string
	// State is stopped, changing, stuck or running; empty means all.
	State string
	// Sort is the column; empty puts first what wants to be looked at.
	Sort         string
	IsDescending bool
	// Page counts from 1.
	Page int
}

func sortableColumns() []string { return []string{"name", "state", "since", "by", "until", "saved"} }

func viewStates() []string { return []string{"stopped", "changing", "stuck", "running"} }

// parseViewQuery takes what it knows; the address of a page is nothing to be refused for.
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

// encode is the query of an address, without what it says anyway.
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

// Encoded is encode for the page.
func (q viewQuery) Encoded() string { return q.encode() }

func (q viewQuery) onPage(page int) viewQuery {
	q.Page = page
	return q
}

// InState is the query of another state.
func (q viewQuery) InState(state string) viewQuery {
	q.State, q.Page = state, 1
	return q
}

// sortedBy is what a click on a column's head asks for: that column, then the other way round, then the usual order.
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

// isAbout reports whether somebody looks at a switch, whatever its state is.
func (q viewQuery) isAbout(s *listedSwitch) bool {
	if q.Kind != "" && s.kind.Name() != q.Kind || q.Namespace != "" && s.Namespace != q.Namespace {
		return false
	}
	if q.Text == "" {
		return true
	}
	words := strings.ToLower(strings.Join([]string{s.Kind, s.APIGroup, s.Namespace, s.Name, s.Part, s.State, s.By, s.Reason, s.Next, s.Message}, " "))
	for word := range strings.FieldsSeq(strings.ToLower(q.Text)) {
		if !strings.Contains(words, word) {
			return false
		}
	}
	return true
}

func (q viewQuery) hasState(s *listedSwitch) bool {
	switch q.State {
	case "stopped":
		return s.Stopped
	case "changing":
		return s.isChanging()
	case "stuck":
		return s.IsStuck()
	case "running":
		return s.attention == attentionRunning
	default:
		return true
	}
}

// sortSwitches puts switches into the order that is asked for. What has no value for a column comes last either way.
func (q viewQuery) sortSwitches(all []*listedSwitch, now time.Time) {
	slices.SortFunc(all, func(a, b *listedSwitch) int { return cmp.Or(q.compare(a, b, now), compareNames(a, b)) })
}

func (q viewQuery) compare(a, b *listedSwitch, now time.Time) int {
	switch q.Sort {
	case "name":
		return q.directed(compareNames(a, b))
	case "state":
		return q.directed(cmp.Compare(a.State, b.State))
	case "since":
		return q.compareTimes(a.Since, b.Since)
	case "until":
		return q.compareTimes(a.Until, b.Until)
	case "by":
		return cmp.Or(compareEmpty(a.By == "", b.By == ""), q.directed(cmp.Compare(a.By, b.By)))
	case "saved":
		one, isKnown := a.savings.machineHours(now)
		other, isOtherKnown := b.savings.machineHours(now)
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

func compareNames(a, b *listedSwitch) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.kind.Name(), b.kind.Name()), cmp.Compare(a.Part, b.Part))
}
