// SPDX-License-Identifier: Apache-2.0

package page

func renderTimeline(v timelineView) markup {
	return fill(`%v
<body>
<a class="skip" href="#timeline">Skip to the timeline</a>
<header>
<h1><span class="mark" aria-hidden="true"></span>Torpor</h1>
%v
<form method="post" action="logout"><span class="user">%v</span> <button type="submit">Log out</button></form>
</header>
<main>
%v
%v
<p class="hint">The bars show when a stop was requested, as recorded in the objects. Days begin at 00:00 UTC.
<span class="key stopped"></span> stopped <span class="key changing"></span> changing now <span class="key stuck"></span> stuck now
<span class="key unknown"></span> not recorded</p>
<div class="scroll" role="region" aria-label="Timeline" tabindex="0">
<table id="timeline">
<caption>Stops of the last seven days</caption>
<thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col"><span class="days">%v</span></th><th scope="col">Hours</th></tr></thead>
<tbody>%v</tbody>
</table>
</div>
%v
%v
</main>
</body>
</html>
`, renderHead("Torpor: seven days"), renderViews("timeline"), v.User,
		fillEach(v.Warnings, func(text string) markup { return fill(`<p class="warning">%v</p>`, text) }),
		renderFilter(v.view, "timeline"),
		fillEach(v.Days, func(day string) markup { return fill(`<span>%v</span>`, day) }),
		fillEach(v.Rows, renderTimelineRow), renderPager(v.view), renderSums(v.Sums))
}

func renderTimelineRow(r timelineRow) markup {
	return fill(`<tr>
<th scope="row"><span class="name">%v</span><span class="quiet">%v</span><span class="quiet">in %v</span></th>
<td><span class="badge %v"><span aria-hidden="true">%v</span> %v</span></td>
<td class="past"><svg viewBox="0 0 %v 20" preserveAspectRatio="none" role="img" aria-label="%v"><title>%v</title>%v</svg></td>
<td class="number">%v</td>
</tr>`, r.Title, renderKind(r.rowView), r.Namespace, r.Badge, r.Symbol, r.State, weekSeconds, r.Text, r.Text,
		fillEach(r.Bars, func(b bar) markup {
			return fill(`<rect class="%v" x="%v" width="%v" height="20"/>`, b.Class, b.Left, b.Width)
		}), r.Hours)
}

func renderSums(sums []namespaceSum) markup {
	if len(sums) == 0 {
		return ""
	}
	return fill(`<h2>Hours by namespace</h2>
<div class="scroll"><table>
<caption>Hours for which stops were requested, by namespace</caption>
<thead><tr><th scope="col">Namespace</th><th scope="col">Objects</th><th scope="col">Hours</th></tr></thead>
<tbody>%v</tbody>
</table></div>`, fillEach(sums, func(s namespaceSum) markup {
		return fill(`<tr><th scope="row">%v</th><td class="number">%v</td><td class="number">%v</td></tr>`, s.Namespace, s.Objects, s.Hours)
	}))
}
