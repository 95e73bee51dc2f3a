// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"time"
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
<p class="hint">What the stops of these objects have saved, as the objects record it: machines of clusters while all are observed off, `+
		`and requests of Pods that do not run. Weeks begin on Monday, 00:00 UTC. Deleted objects are not counted. %v %v</p>
%v%v%v
</main>
</body>
</html>
`, renderHead("Torpor: savings"), renderViews("savings"), v.User,
		fillEach(v.Warnings, func(text string) markup { return fill(`<p class="warning">%v</p>`, text) }),
		renderFilter(v.view, "savings"), v.Prices.describe(), v.describeUncounted(),
		renderSavedWeeks(v), renderSavedGroups(v, "Namespace", v.ByNamespace), renderSavedGroups(v, v.Prices.ownerLabel, v.ByOwner))
}

func (v savingsView) describeUncounted() string {
	if v.Uncounted == 0 {
		return ""
	}
	return fmt.Sprintf("Stopped objects that are not counted now, because they have no figures or are still stopping: %d.", v.Uncounted)
}

// renderSavedWeeks lists the periods, each with a link that selects it.
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

// renderSavedGroups lists the groups of objects that have saved most in the selected period.
func renderSavedGroups(v savingsView, title string, groups []savedRow) markup {
	if len(groups) == 0 {
		return ""
	}
	shown, more := groups[:min(len(groups), maxSums)], markup("")
	if left := len(groups) - len(shown); left > 0 {
		more = fill(`<p class="hint">%v more have saved less.</p>`, left)
	}
	return fill(`<h2>%v by %v</h2>%v%v`, v.Period, title, renderSavedTable(v, v.Period+" by "+title, title, fillEach(shown, func(r savedRow) markup {
		name := fill(`%v`, r.Name)
		if r.Name == "" {
			name = `<span class="quiet">without the label</span>`
		}
		return renderSavedRow(v, name, r)
	})), more)
}

// renderSavedTable renders a table of sums. Amounts appear once there is a price.
func renderSavedTable(v savingsView, caption, title string, rows markup) markup {
	return fill(`<div class="scroll" role="region" aria-label="%v" tabindex="0"><table class="saved">
<caption>%v</caption>
<thead><tr><th scope="col">%v</th><th scope="col">Objects</th><th scope="col">Machine-hours</th><th scope="col">CPU-hours</th><th scope="col">GiB-hours</th>%v</tr></thead>
<tbody>%v</tbody>
</table></div>`, caption, caption, title, chooseMarkup(v.Prices.areSet(), `<th scope="col">Amount</th>`, ""), rows)
}

func renderSavedRow(v savingsView, name markup, r savedRow) markup {
	amount := markup("")
	if v.Prices.areSet() {
		amount = fill(`<td class="number">%v</td>`, v.Prices.formatAmount(v.Prices.costOf(r.totals)))
	}
	hours := func(seconds float64) string { return formatHours(seconds / time.Hour.Seconds()) }
	return fill(`<tr><th scope="row">%v</th><td class="number">%v</td><td class="number">%v</td><td class="number">%v</td><td class="number">%v</td>%v</tr>`,
		name, r.Objects, hours(r.totals.MachineSeconds), hours(r.totals.CPUSeconds), hours(r.totals.MemoryByteSeconds/bytesPerGiB), amount)
}
