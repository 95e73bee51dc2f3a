// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"time"

	"github.com/torpor-dev/torpor/internal/stop/savings"
)

func renderSavings(v savingsView) markup {
	return fill(`%v
<body>
<a class="skip" href="#savings">Skip to the savings</a>
<header>
<h1><span class="mark" aria-hidden="true"></span>Torpor</h1>
%v
<form method="post" action="logout"><span class="user">%v</span> <button type="submit">Log out</button></form>
</header>
<main id="savings" tabindex="-1">
%v
%v
<p class="hint">Savings of the stops of these objects, as recorded in the objects: machines of clusters while all of them are observed off, `+
		`and requests of Pods that do not run. Weeks begin on Monday, 00:00 UTC. Deleted objects are not counted. %v %v</p>
%v%v%v
</main>
</body>
</html>
`, renderHead("Torpor: savings"), renderViews("savings"), v.User,
		fillEach(v.Warnings, func(text string) markup { return fill(`<p class="warning">%v</p>`, text) }),
		renderFilter(v.view, "savings"), v.Prices.describe(), v.describeUncounted(),
		renderSavedWeeks(v), renderSavedGroups(v, "Namespace", "namespace", v.ByNamespace),
		renderSavedGroups(v, v.Prices.ownerLabel, v.Prices.ownerLabel, v.ByOwner))
}

func (v savingsView) describeUncounted() string {
	if v.Uncounted == 0 {
		return ""
	}
	return fmt.Sprintf("Stopped objects that are not counted now, because they have no figures or are still stopping: %d.", v.Uncounted)
}

// renderSavedWeeks renders the periods, each as a link that selects it.
func renderSavedWeeks(v savingsView) markup {
	return renderSavedTable(v, "Savings by week", "Week", fillEach(v.Weeks, func(r savedRow) markup {
		q := v.Query.encode()
		if q != "" {
			q = "&" + q
		}
		name := fill(`<a href="savings?week=%v%v"%v>%v</a>`, r.Week, q, chooseMarkup(r.Week == v.Week, ` aria-current="true"`, ""), r.Name)
		return renderSavedRow(v, name, r)
	}))
}

// renderSavedGroups renders the groups of objects with the highest savings in the selected period. title is the column
// heading for their names, and what is the corresponding word in a sentence.
func renderSavedGroups(v savingsView, title, what string, groups []savedRow) markup {
	if len(groups) == 0 {
		return ""
	}
	shown, more := groups[:min(len(groups), maxSums)], markup("")
	if left := len(groups) - len(shown); left > 0 {
		more = fill(`<p class="hint">%v more have saved less.</p>`, left)
	}
	caption := v.Period + " by " + what
	return fill(`<h2>%v</h2>%v%v`, caption, renderSavedTable(v, caption, title, fillEach(shown, func(r savedRow) markup {
		name := fill(`%v`, r.Name)
		if r.Name == "" {
			name = `<span class="quiet">without the label</span>`
		}
		return renderSavedRow(v, name, r)
	})), more)
}

// savedColumn is the column of a resource, such as machine-hours.
type savedColumn struct {
	title string
	hours func(savings.Totals) float64
}

// columns returns the resources with savings at any time, or all resources if there are no savings.
func (v savingsView) columns() []savedColumn {
	all := []savedColumn{
		{"Machine-hours", func(t savings.Totals) float64 { return t.MachineSeconds / time.Hour.Seconds() }},
		{"CPU-hours", func(t savings.Totals) float64 { return t.CPUSeconds / time.Hour.Seconds() }},
		{"GiB-hours", func(t savings.Totals) float64 { return t.MemoryByteSeconds / bytesPerGiB / time.Hour.Seconds() }},
	}
	var some []savedColumn
	for _, c := range all {
		if c.hours(v.Weeks[len(v.Weeks)-1].totals) > 0 {
			some = append(some, c)
		}
	}
	if len(some) == 0 {
		return all
	}
	return some
}

// renderSavedTable renders a table of sums. It contains amounts if any price is set.
func renderSavedTable(v savingsView, caption, title string, rows markup) markup {
	return fill(`<div class="scroll" role="region" aria-label="%v" tabindex="0"><table class="saved">
<caption>%v</caption>
<thead><tr><th scope="col">%v</th><th scope="col">Objects</th>%v%v</tr></thead>
<tbody>%v</tbody>
</table></div>`, caption, caption, title,
		fillEach(v.columns(), func(c savedColumn) markup { return fill(`<th scope="col">%v</th>`, c.title) }),
		chooseMarkup(v.Prices.areSet(), `<th scope="col">Amount</th>`, ""), rows)
}

func renderSavedRow(v savingsView, name markup, r savedRow) markup {
	amount := markup("")
	if v.Prices.areSet() {
		amount = fill(`<td class="number">%v</td>`, v.Prices.formatAmount(v.Prices.costOf(r.totals)))
	}
	return fill(`<tr><th scope="row">%v</th><td class="number">%v</td>%v%v</tr>`, name, r.Objects,
		fillEach(v.columns(), func(c savedColumn) markup {
			return fill(`<td class="number">%v</td>`, formatHours(c.hours(r.totals)))
		}), amount)
}
