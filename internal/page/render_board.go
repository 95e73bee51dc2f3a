// SPDX-License-Identifier: Apache-2.0

package page

import "github.com/torpor-dev/torpor/internal/switches/kinds"

func renderHead(title string) markup {
	return fill(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%v</title>
<link rel="icon" href="assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="assets/page.css">
</head>`, title)
}

func renderLogin(v loginView) markup {
	return fill(`%v
<body class="login">
<main>
<h1><span class="mark" aria-hidden="true"></span>Torpor</h1>
<p>See which objects are stopped, by whom, why and until when.</p>
%v
<form method="post" action="login">
<label for="token">Bearer token of your Kubernetes user</label>
<input id="token" name="token" type="password" autocomplete="off" required autofocus spellcheck="false">
<button class="primary" type="submit">Log in</button>
</form>
<p class="hint">For example the token of a service account: <code>kubectl create token NAME</code>. `+
		`The token stays in a cookie that scripts cannot read, until you log out or close the browser. `+
		`You see and switch the objects that the user of the token may list and change.</p>
</main>
</body>
</html>
`, renderHead("Torpor: log in"), fillUnlessEmpty(`<p class="error" role="alert">%v</p>`, v.Error))
}

func renderBoard(v view) markup {
	return fill(`%v
<body>
<a class="skip" href="#table">Skip to the table</a>
<header>
<h1><span class="mark" aria-hidden="true"></span>Torpor</h1>
%v
<p id="connection" role="status" data-state="static">not live</p>
<form method="post" action="logout"><span class="user">%v</span> <button type="submit">Log out</button></form>
</header>
<main>
<div id="summary">%v</div>
%v
<div class="scroll" role="region" aria-label="Stoppable objects" tabindex="0">
<table id="table" data-query="%v">
<caption>Stoppable objects and their states</caption>
<thead id="columns">%v</thead>
<tbody id="rows">%v</tbody>
</table>
</div>
<div id="pager">%v</div>
<div id="empty">%v</div>
<p id="news" class="quiet" role="log" aria-live="polite" aria-label="Changes"></p>
%v</main>
<noscript><p class="warning">Without scripts this page shows the state when it was loaded, and has no buttons: `+
		`use kubectl torpor stop and start.</p></noscript>
%v%v
%v
<script src="assets/toast.js" defer></script>
<script src="assets/drawer.js" defer></script>
<script src="assets/actions.js" defer></script>
<script src="assets/page.js" defer></script>
</body>
</html>
`, renderHead("Torpor: stopped objects"), renderViews("./"), v.User, renderSummary(v), renderFilter(v, "./"), v.Query.encode(),
		renderColumns(v), fillEach(v.Rows, func(r rowView) markup { return r.html() }), renderPager(v), renderEmpty(v), selection, drawer, switchDialog, toast)
}

// switchDialog asks for the reason and the end of an action, for one or several objects. actions.js fills in the rest.
const switchDialog markup = `<dialog id="flip" aria-labelledby="flip-title">
<form method="post" action="switch">
<h2 id="flip-title"></h2>
<p id="flip-what"></p>
<ul id="flip-objects" aria-label="Objects" tabindex="0"></ul>
<div id="flip-why">
<label>Why <input name="reason" maxlength="500" placeholder="shown to other users" autocomplete="off" list="reasons"></label>
<datalist id="reasons"></datalist>
</div>
<div id="flip-end">
<label>Until <input name="until" maxlength="64" placeholder="8h, 3d, tomorrow, monday 9:00" autocomplete="off" ` +
	`aria-describedby="flip-until flip-echo"></label>
<p class="chips" role="group" aria-label="Common ends"><button type="button" data-end="tonight">tonight</button> ` +
	`<button type="button" data-end="tomorrow">tomorrow</button> <button type="button" data-end="monday">monday</button></p>
<p id="flip-echo" role="status"></p>
<p id="flip-until" class="hint"></p>
</div>
<p class="error" role="alert" hidden></p>
<p class="buttons"><button type="button" value="cancel">Cancel</button> <button class="primary" type="submit"></button></p>
</form>
</dialog>`

// selection is a toolbar for the selected rows. actions.js shows it once a row is selected.
const selection markup = `<div id="selection" role="toolbar" aria-label="Selected objects" hidden><span role="status"></span> ` +
	`<button type="button" data-select="stop">Stop…</button> <button type="button" data-select="start">Start…</button> ` +
	`<button type="button" data-select="all">Select all shown</button> <button type="button" data-select="none">Clear</button></div>
`

// toast shows the request that a click has made, and offers Undo.
const toast markup = `<div id="toast" role="status" hidden><span></span> <button type="button" class="undo">Undo</button> ` +
	`<button type="button" class="close" aria-label="Close the note">×</button></div>`

// renderFilter renders the form that selects objects. action is the form's target address.
func renderFilter(v view, action string) markup {
	q, sorting := v.Query, markup("")
	if q.Sort != "" {
		sorting = fill(`<input type="hidden" name="sort" value="%v%v">`, chooseMarkup(q.IsDescending, "-", ""), q.Sort)
	}
	return fill(`<form id="filter" method="get" action="%v" role="search" aria-label="Filter">
<label class="wide">Search <input type="search" name="q" value="%v" placeholder="name, person, reason" maxlength="200"></label>
<label>Kind <select name="kind">%v</select></label>
<label>Namespace <select name="namespace">%v</select></label>
<label>State <select name="state">%v</select></label>
%v
<button type="submit">Show</button>
</form>`, action, q.Text, renderChoices(v.Kinds, q.Kind), renderChoices(v.Namespaces, q.Namespace),
		renderChoices(viewStates(), q.State), sorting)
}

// renderChoices lists the options of a select element. The empty value selects all.
func renderChoices(values []string, selected string) markup {
	return fill(`<option value="">all</option>%v`, fillEach(values, func(value string) markup {
		return fill(`<option%v>%v</option>`, chooseMarkup(value == selected, " selected", ""), value)
	}))
}

func renderSummary(v view) markup {
	s, overdue, unknown := v.Summary, markup(""), markup("")
	if s.Overdue > 0 {
		overdue = fill(`<li class="bad">%v</li>`, renderTile(v.Query, "overdue", s.Overdue, "overdue"))
	}
	if s.Unknown > 0 {
		unknown = fill(`, %v %v not counted`, s.Unknown, chooseMarkup(s.Unknown == 1, "cluster", "clusters"))
	}
	return fill(`<ul class="tiles" aria-label="Summary of all objects that you may see">
<li>%v</li>
<li>%v</li>
<li>%v</li>
<li class="%v">%v</li>
%v
<li>%v</li>
</ul>
%v`,
		renderTile(v.Query, "", s.Total, "can be stopped"), renderTile(v.Query, "stopped", s.Stopped, "stopped"),
		renderTile(v.Query, "changing", s.Changing, "changing"),
		chooseMarkup(s.Stuck > 0, "bad", ""), renderTile(v.Query, "stuck", s.Stuck, "stuck"),
		overdue, renderTile(v.Query, "saving", s.SavedHours, fill(`machine-hours saved this week%v`, unknown)),
		fillEach(v.Warnings, func(text string) markup { return fill(`<p class="warning">%v</p>`, text) }))
}

// renderTile renders a link to the objects in a state. An empty state means all objects.
func renderTile(q viewQuery, state string, count any, label markup) markup {
	return fill(`<a href="?%v"%v><b>%v</b> %v</a>`,
		q.InState(state).encode(), chooseMarkup(q.State == state, ` aria-current="true"`, ""), count, label)
}

func renderColumns(v view) markup {
	return fill(`<tr>%v</tr>`, fillEach(v.Columns, func(c columnView) markup {
		title := fill(`%v`, c.Title)
		if c.Link != "" {
			title = fill(`<a href="%v">%v</a>`, c.Link, c.Title)
		}
		return fill(`<th scope="col"%v>%v</th>`, fillUnlessEmpty(` aria-sort="%v"`, c.AriaSort), title)
	}))
}

// renderEmpty renders example commands for a caller who sees no objects.
func renderEmpty(v view) markup {
	if v.Summary.Total > 0 {
		return ""
	}
	return fill(`<section class="empty" aria-labelledby="empty-title"><h2 id="empty-title">Nothing can be stopped here yet</h2>
<p>%v appear once they have been stopped. Begin with one of these commands:</p>
<ol><li>Stop one until tomorrow: <code>kubectl torpor stop deployment/NAME -n NAMESPACE --until tomorrow</code></li>
<li>Stop a namespace every night: <code>kubectl torpor slumber create nights -n NAMESPACE --asleep 19:00-7:00 --timezone Europe/Berlin</code></li>
<li>List what you may see: <code>kubectl torpor status --all-namespaces</code></li></ol></section>`,
		kinds.JoinNames(kinds.ListWorkloads().Plurals()))
}

func renderPager(v view) markup {
	var shown, previous, next markup
	switch {
	case v.Matching > 0:
		shown = fill(`%v–%v of %v`, v.FirstRow(), v.LastRow(), v.Matching)
	case v.Summary.Total > 0:
		shown = `Nothing to show; see <a href="./">the whole list</a>`
	default:
		shown = `Nothing to show: there are no stoppable objects, or you may not list them`
	}
	if v.Query.Page > 1 {
		previous = fill(`<a href="?%v" rel="prev">Previous</a>`, v.PreviousPage().encode())
	}
	if v.Query.Page < v.Pages {
		next = fill(`<a href="?%v" rel="next">Next</a>`, v.NextPage().encode())
	}
	return fill(`<nav aria-label="Pages"><p>%v</p>
%v
%v</nav>`, shown, previous, next)
}
