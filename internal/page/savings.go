// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/stop/savings"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	// allWeeks selects all recorded stops instead of one week.
	allWeeks = "all"
	// maxOwnLabels limits the number of labels that are stored for an object. Objects with more labels have no owner on
	// the page.
	maxOwnLabels = 64
)

// readSavings returns the savings from an object's stops, for kinds that record savings.
func readSavings(k *kinds.Kind, obj client.Object) kinds.Savings {
	if saver, saves := k.Definition.(kinds.Saver); saves {
		return saver.ReadSavings(obj)
	}
	return kinds.Savings{}
}

// keptLabels returns the labels of an object with savings, which may contain its owner.
func keptLabels(s kinds.Savings, obj client.Object) map[string]string {
	if labels := obj.GetLabels(); s.Recorded != nil && len(labels) <= maxOwnLabels {
		return labels
	}
	return nil
}

// savingsView is the content of the savings tab for one caller.
type savingsView struct {
	view
	Prices prices
	// Week is the selected period as in the address, and Period is its name.
	Week, Period string
	// Weeks contains the sums for all periods. ByNamespace and ByOwner contain the sums for the selected period.
	Weeks, ByNamespace, ByOwner []savedRow
	// Uncounted is the number of stopped objects that are currently not counted.
	Uncounted int
}

// savedRow is the sum for a group of objects, or for a period. Week is empty for a group.
type savedRow struct {
	Name, Week string
	Objects    int
	totals     savings.Totals
}

// showSavings renders the savings of the matching objects by week, namespace and owner.
func (s *Server) showSavings(v view, r *http.Request) markup {
	set, err := readPrices(s.PricesFolder)
	if err != nil {
		v.Warnings = append(v.Warnings, "The ConfigMap with prices is not used: "+err.Error())
	}
	return renderSavings(composeSavings(v, set, r.URL.Query(), s.Clock.Now()))
}

// composeSavings sums up the savings of the objects in a view.
func composeSavings(selected view, set prices, values url.Values, now time.Time) savingsView {
	v := savingsView{view: selected, Prices: set}
	v.Weeks = listWeeks(selected.matching, now)
	chosen := v.Weeks[max(0, slices.IndexFunc(v.Weeks, func(w savedRow) bool { return w.Week == values.Get("week") }))]
	v.Week, v.Period = chosen.Week, chosen.Name
	byNamespace, byOwner, totalsOf := savedSums{}, savedSums{}, totalsIn(v.Week, now)
	for _, s := range selected.matching {
		if s.Stopped && savings.RateOf(s.savings.Recorded).IsZero() {
			v.Uncounted++
		}
		totals := totalsOf(s)
		if totals == (savings.Totals{}) {
			continue
		}
		byNamespace.add(s.Namespace, totals)
		if set.ownerLabel != "" {
			byOwner.add(s.labels[set.ownerLabel], totals)
		}
	}
	v.ByNamespace, v.ByOwner = byNamespace.sorted(set), byOwner.sorted(set)
	return v
}

// listWeeks returns the sums for the current week and for the earlier weeks in the objects' records, followed by the
// sum for all stops.
func listWeeks(matching []*listedSwitch, now time.Time) []savedRow {
	var rows []savedRow
	for i := range savings.MaxWeeks {
		monday := savings.WeekOf(now).AddDate(0, 0, -7*i)
		rows = append(rows, savedRow{Name: "Week of " + monday.Format("2 Jan 2006"), Week: monday.Format(time.DateOnly)})
	}
	rows = append(rows, savedRow{Name: "All recorded stops", Week: allWeeks})
	for i := range rows {
		totalsOf := totalsIn(rows[i].Week, now)
		for _, s := range matching {
			if t := totalsOf(s); t != (savings.Totals{}) {
				rows[i].add(t)
			}
		}
	}
	return rows
}

func (r *savedRow) add(t savings.Totals) {
	r.Objects++
	r.totals = r.totals.Plus(t)
}

// totalsIn returns a function that returns the savings of an object in a week, or in total.
func totalsIn(week string, now time.Time) func(*listedSwitch) savings.Totals {
	monday, err := time.Parse(time.DateOnly, week)
	if err != nil {
		return func(s *listedSwitch) savings.Totals { return savings.TotalsUntil(s.savings.Recorded, now) }
	}
	return func(s *listedSwitch) savings.Totals { return savings.TotalsOfWeek(s.savings.Recorded, monday, now) }
}

// savedSums contains the sums for groups, by name.
type savedSums map[string]*savedRow

func (m savedSums) add(name string, t savings.Totals) {
	row := m[name]
	if row == nil {
		row = &savedRow{Name: name}
		m[name] = row
	}
	row.add(t)
}

// sorted returns the groups, sorted by savings in descending order.
func (m savedSums) sorted(set prices) (rows []savedRow) {
	for _, row := range slices.SortedFunc(maps.Values(m), func(a, b *savedRow) int {
		return cmp.Or(cmp.Compare(set.costOf(b.totals), set.costOf(a.totals)), cmp.Compare(b.totals.MachineSeconds, a.totals.MachineSeconds),
			cmp.Compare(b.totals.CPUSeconds, a.totals.CPUSeconds), cmp.Compare(b.totals.MemoryByteSeconds, a.totals.MemoryByteSeconds), cmp.Compare(a.Name, b.Name))
	}) {
		rows = append(rows, *row)
	}
	return rows
}
