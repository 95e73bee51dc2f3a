// SPDX-License-Identifier: Apache-2.0

package page

import (
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/stop/preflight"
)

// drawer shows the details of one object. drawer.js fills it.
const drawer markup = `<dialog id="drawer" aria-labelledby="drawer-title"><div id="drawer-content"></div></dialog>
<template id="drawer-error"><article class="details"><header><h2 id="drawer-title" tabindex="-1">Details</h2> ` +
	`<button type="button" class="close">Close</button></header><p class="error" role="alert"></p></article></template>
`

// address returns the query string of the URL that shows the details of a row.
func (r rowView) address() string {
	return url.Values{"kind": {r.KindName}, "namespace": {r.Namespace}, "name": {r.Name}, "part": {r.Part}}.Encode()
}

// renderDetailsPage renders the details as a separate page, for a browser without scripts. It has no buttons for
// actions, because they need scripts.
func renderDetailsPage(d details) markup {
	d.Verbs = nil
	return fill(`%v
<body>
<header><h1><span class="mark" aria-hidden="true"></span>Torpor</h1></header>
<main>
<p><a href="./">All objects</a></p>
%v
</main>
</body>
</html>
`, renderHead("Torpor: "+d.Row.Title), renderDetails(d))
}

func renderDetails(d details) markup {
	return fill(`<article class="details" data-key="%v" data-state="%v">
<header><h2 id="drawer-title" tabindex="-1">%v</h2> <span class="badge %v"><span aria-hidden="true">%v</span> %v</span>
<button type="button" class="close" aria-label="Close the details">Close</button></header>
<p class="quiet">%v%v in %v</p>
<div class="actions" role="group" aria-label="Actions">%v</div>
%v%v%v%v%v
</article>`,
		d.Row.Key, d.Row.State, d.Row.Title, d.Row.Badge, d.Row.Symbol, d.Row.State,
		fillUnlessEmpty(`%v · `, objectNameOf(d.Row)), renderKind(d.Row), d.Row.Namespace,
		fillEach(d.Verbs, func(verb string) markup { return renderAction(d.Row, verb) + " " }),
		renderRecord(d), renderPlan(d.Plan), renderHistory(d), renderConditions(d.Conditions), renderEvents(d))
}

// objectNameOf returns the name of an object, or "" if it is the same as the title.
func objectNameOf(r rowView) string {
	if r.Title == r.Name {
		return ""
	}
	return r.Name
}

// renderRecord renders the state and the record of the switch.
func renderRecord(d details) markup {
	r, by := d.Row, "Started by"
	if r.Stopped {
		by = "Stopped by"
	}
	var skipped markup
	if d.SkippedUntil != nil {
		author := fillUnlessEmpty(` <span class="quiet">set by %v</span>`, d.SkippedBy)
		skipped = fill(`%v%v`, renderTime(d.SkippedUntil), author)
	}
	var until markup
	if r.Stopped && r.Until == nil {
		until = "a manual start"
	} else if r.Until != nil {
		until = renderEnd(r)
	}
	return fill(`<section aria-labelledby="drawer-record"><h3 id="drawer-record">State and record</h3>
<dl>%v%v%v%v%v%v%v%v</dl></section>
`,
		renderField("State", fill(`%v`, r.State)), renderField("Found", fill(`%v`, r.Detail)),
		renderField("Next step", fill(`%v%v`, r.Next, fillUnlessEmpty(`; %v`, d.Remedy))),
		renderField(by, fill(`%v`, r.By)), renderField("Since", renderTime(r.Since)),
		renderField("Why", fill(`%v`, r.Reason)), renderField("Until", until),
		renderField("Skipped until", skipped))
}

// renderField renders a name and its value. It returns nothing for an empty value.
func renderField(name string, value markup) markup {
	if value == "" {
		return ""
	}
	return fill(`<dt>%v</dt><dd>%v</dd>`, name, value)
}

func renderPlan(p planView) markup {
	title := "Plan of a stop"
	if p.IsStart {
		title = "Plan of a start"
	}
	body := fill(`<p class="quiet">%v</p>`, p.Note)
	if p.Note == "" {
		body = fill(`<ol>%v%v</ol>%v`,
			fillEach(p.Effects, func(effect string) markup { return fill(`<li>%v</li>`, effect) }),
			renderWakeBy(p), renderFindings(p.Findings))
	}
	return fill(`<section aria-labelledby="drawer-plan"><h3 id="drawer-plan">%v</h3>
%v</section>
`, title, body)
}

func renderWakeBy(p planView) markup {
	if p.WakeBy == nil || p.IsStart {
		return ""
	}
	return fill(`<li>The cluster must run by %v, before its certificates expire</li>`, renderTime(p.WakeBy))
}

func renderFindings(findings []preflight.Finding) markup {
	if len(findings) == 0 {
		return `<p class="quiet">No problems were found.</p>`
	}
	return fill(`<ul>%v</ul>`, fillEach(findings, func(f preflight.Finding) markup {
		return fill(`<li><span class="finding %v">%v: %v</span> %v</li>`, f.Severity, f.Severity, f.Code, f.Message)
	}))
}

func renderHistory(d details) markup {
	more := markup("")
	if d.MoreStops > 0 {
		more = fill(`<p class="quiet">%v older stops are recorded.</p>`, d.MoreStops)
	}
	body := fill(`<ul>%v</ul>%v`, fillEach(d.Stops, renderStop), more)
	if len(d.Stops) == 0 {
		body = `<p class="quiet">No stop is recorded.</p>`
	}
	return fill(`<section aria-labelledby="drawer-history"><h3 id="drawer-history">History</h3>
%v</section>
`, body)
}

func renderStop(s stopView) markup {
	var until, ended markup
	if s.Until != nil {
		until = fill(`; until %v%v`, renderTime(s.Until), fillUnlessEmpty(`, set by %v`, s.UntilBy))
	}
	if s.EndedAt != nil {
		ended = fill(`; started %v%v`, renderTime(s.EndedAt), fillUnlessEmpty(` by %v`, s.StartedBy))
	}
	return fill(`<li>Stopped %v%v%v%v%v</li>`,
		renderTime(s.Since), fillUnlessEmpty(` by %v`, s.By), fillUnlessEmpty(`: %v`, s.Reason), until, ended)
}

func renderConditions(conditions []metav1.Condition) markup {
	if len(conditions) == 0 {
		return ""
	}
	return fill(`<section aria-labelledby="drawer-conditions"><h3 id="drawer-conditions">Conditions</h3>
<ul>%v</ul></section>
`, fillEach(conditions, func(c metav1.Condition) markup {
		since := renderTime(newTimeView(&c.LastTransitionTime))
		return fill(`<li><b>%v</b> %v, %v since %v%v</li>`, c.Type, c.Status, c.Reason, since, fillUnlessEmpty(`: %v`, c.Message))
	}))
}

func renderEvents(d details) markup {
	body := fill(`<ul>%v</ul>`, fillEach(d.Events, func(e eventView) markup {
		times := markup("")
		if e.Count > 1 {
			times = fill(` (%v times)`, e.Count)
		}
		return fill(`<li>%v <b>%v</b> %v%v: %v</li>`, renderTime(e.At), e.Reason, e.Type, times, e.Message)
	}))
	switch {
	case d.EventsNote != "":
		body = fill(`<p class="quiet">%v</p>`, d.EventsNote)
	case len(d.Events) == 0:
		body = `<p class="quiet">There are no events.</p>`
	}
	return fill(`<section aria-labelledby="drawer-events"><h3 id="drawer-events">Events</h3>
%v</section>
`, body)
}
