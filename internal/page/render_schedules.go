// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"slices"
	"strings"
)

// renderViews renders links to the tabs of the page. current is the address of the visible tab.
func renderViews(current string) markup {
	tab := func(address, title string) markup {
		return fill(`<a href="%v"%v>%v</a>`, address, chooseMarkup(address == current, ` aria-current="page"`, ""), title)
	}
	return fill(`<nav class="views" aria-label="Views">%v %v %v %v</nav>`, tab("./", "Objects"), tab("timeline", "Seven days"), tab("savings", "Savings"), tab("schedules", "Schedules"))
}

func renderScheduleHead(title, user string) markup {
	return fill(`%v
<body>
<a class="skip" href="#main">Skip to the schedules</a>
<header>
<h1><span class="mark" aria-hidden="true"></span>Torpor</h1>
%v
<form method="post" action="logout"><span class="user">%v</span> <button type="submit">Log out</button></form>
</header>
`, renderHead(title), renderViews("schedules"), user)
}

func renderSchedules(v schedulesView) markup {
	return fill(`%v<main id="main" tabindex="-1">
<h2>Schedules</h2>
%v%v%v
%v
%v
<div id="schedules">%v</div>
%v
</main>
<script src="assets/schedules.js" defer></script>
</body>
</html>
`, renderScheduleHead("Torpor: schedules", v.User),
		fillUnlessEmpty(`<p class="done" role="status">%v</p>`, v.Done), fillUnlessEmpty(`<p class="error" role="alert">%v</p>`, v.Problem),
		fillEach(v.Warnings, func(text string) markup { return fill(`<p class="warning">%v</p>`, text) }),
		renderScheduleForm(v.Form, v.Problem != "", v.Namespaces), renderScheduleFilter(v),
		fillEach(v.Schedules, renderSchedule), renderSchedulePager(v))
}

func renderScheduleFilter(v schedulesView) markup {
	return fill(`<form id="filter" method="get" action="schedules" role="search" aria-label="Filter">
<label class="wide">Search <input type="search" name="q" value="%v" placeholder="name, namespace, zone, reason, state" maxlength="200"></label>
<label>Namespace <select name="namespace">%v</select></label>
<button type="submit">Show</button>
</form>`, v.Query.Text, renderChoices(v.Namespaces, v.Query.Namespace))
}

func renderSchedulePager(v schedulesView) markup {
	var shown, previous, next markup
	switch page := v.Query.Page; {
	case v.Matching > 0:
		shown = fill(`%v–%v of %v`, (page-1)*schedulesPerPage+1, min(page*schedulesPerPage, v.Matching), v.Matching)
	case v.Total > 0:
		shown = `Nothing to show; see <a href="schedules">all schedules</a>`
	default:
		shown = `Nothing to show: there are no schedules, or you may not list them. Create one above, or with <code>kubectl torpor slumber create</code>`
	}
	if v.Query.Page > 1 {
		previous = fill(`<a href="%v" rel="prev">Previous</a>`, v.Query.onPage(v.Query.Page-1))
	}
	if v.Query.Page < v.Pages {
		next = fill(`<a href="%v" rel="next">Next</a>`, v.Query.onPage(v.Query.Page+1))
	}
	return fill(`<div id="pager"><nav aria-label="Pages"><p>%v</p> %v %v</nav></div>`, shown, previous, next)
}

// title returns a title that is unique among the schedules on the page.
func (v scheduleView) title() string {
	if v.Namespace == "" {
		return v.Kind + " " + v.Name
	}
	return v.Kind + " " + v.Namespace + "/" + v.Name
}

func renderSchedule(v scheduleView) markup {
	place := markup("for the namespaces that it selects")
	if v.Namespace != "" {
		place = fill(`in %v`, v.Namespace)
	}
	state := fill(`<span class="badge %v"><span aria-hidden="true">%v</span> %v</span>`, v.Badge, v.Symbol, v.State)
	if v.IsSuspended {
		state = fill(`%v <span class="badge changing">suspended: stops nothing</span>`, state)
	}
	next := markup("")
	if len(v.Next) > 0 {
		next = fill(`Next %v: %v. `, v.Next[0].Verb, renderLocalTime(v.Next[0].At))
	}
	return fill(`<article data-key="%v" data-sum="%v" aria-label="%v">
<h3>%v <span class="quiet">%v %v</span></h3>
<p>%v %v</p>
%v%v
<p>%v%v of %v objects are stopped.</p>
%v
%v
<details><summary>Next changes and objects<span class="hidden"> of %v</span></summary>
%v%v
<p class="quiet">%v. Time zone %v.</p>
</details>
%v
</article>
`, v.title(), v.Sum, v.title(), v.Name, v.Kind, place, state, renderSince(v.Since),
		fillUnlessEmpty(`<p class="error">Nothing is stopped or started: %v</p>`, v.Invalid),
		fillUnlessEmpty(`<p class="warning">%v</p>`, v.Stalled),
		next, v.Asleep, v.Members, fillUnlessEmpty(`<p class="quiet">%v</p>`, v.Reason),
		renderWeek(v.Week, v.title(), v.Zone),
		v.title(), renderChanges(v.Next, v.IsSuspended, v.Invalid != ""), renderWaves(v.Waves),
		strings.Join(slices.Concat([]string{"Windows as cron expressions"}, v.Windows), "; "), v.Zone,
		renderAwakeForm(v))
}

func renderSince(since *timeView) markup {
	if since == nil {
		return ""
	}
	return fill(`<span class="quiet">since %v</span>`, renderTime(since))
}

func renderLocalTime(at timeView) markup {
	return fill(`<time datetime="%v">%v</time>`, at.Machine, at.Human)
}

// renderWeek renders the week as a table, with the times as text and as bars. The bars are hidden from screen readers.
func renderWeek(week []dayView, title, zone string) markup {
	if len(week) == 0 {
		return ""
	}
	return fill(`<table class="week">
<caption>When %v stops its objects in the next seven days, in the time zone %v</caption>
<thead><tr><th scope="col">Day</th><th scope="col"><span class="hours" aria-hidden="true"><span>0</span><span>6</span><span>12</span><span>18</span><span>24</span></span>`+
		`<span class="hidden">Hours</span></th><th scope="col">Stopped (%v)</th></tr></thead>
<tbody>%v</tbody>
</table>`, title, zone, zone, fillEach(week, renderDay))
}

// noBreakDash is a dash between two word joiners, which prevent a line break within a phase.
const noBreakDash = "\u2060–\u2060"

func renderDay(d dayView) markup {
	bars := fillEach(d.Bars, func(b barView) markup { return fill(`<rect x="%v" width="%v" height="12"/>`, b.From, b.Width) })
	now := markup("")
	if d.IsNow {
		now = fill(`<rect class="now" x="%v" width="8" height="12"/>`, d.Now)
	}
	return fill(`<tr><th scope="row">%v</th><td class="bars"><svg viewBox="0 0 %v 12" preserveAspectRatio="none" aria-hidden="true" focusable="false">%v%v</svg></td><td>%v</td></tr>
`, d.Name, d.Length, bars, now, strings.ReplaceAll(d.Text, "–", noBreakDash))
}

func renderChanges(next []changeView, isSuspended, isInvalid bool) markup {
	switch {
	case isInvalid:
		return `<p>No changes: the schedule is invalid.</p>`
	case isSuspended:
		return `<p>No changes: the schedule is suspended.</p>`
	case len(next) == 0:
		return `<p>No changes are scheduled.</p>`
	}
	return fill(`<ol class="changes">%v</ol>`, fillEach(next, func(c changeView) markup {
		return fill(`<li>%v at %v</li>`, c.Verb, renderLocalTime(c.At))
	}))
}

func renderWaves(waves []waveView) markup {
	if len(waves) == 0 {
		return ""
	}
	return fill(`<ul>%v</ul>`, fillEach(waves, func(w waveView) markup { return fill(`<li>wave %v: %v</li>`, w.Name, w.Text) }))
}

func renderAwakeForm(v scheduleView) markup {
	namespace := markup("")
	if v.Namespace == "" {
		namespace = fill(`<label>In namespace <input name="in" required maxlength="63" autocomplete="off"></label>`)
	}
	return fill(`<form class="awake" method="get" action="keep-awake" aria-label="Keep the objects of %v awake">
<input type="hidden" name="kind" value="%v"><input type="hidden" name="namespace" value="%v"><input type="hidden" name="name" value="%v">
%v<label>Keep awake until <input name="until" maxlength="64" placeholder="the end of the sleep, or 2h, tonight, monday 9:00" autocomplete="off"></label>
<button type="submit">Keep awake…</button>
</form>`, v.title(), v.Kind, v.Namespace, v.Name, namespace)
}

// renderAwakeQuestion renders the objects and the end of the skip for confirmation, before anything is written.
func renderAwakeQuestion(user string, k keepAwake) markup {
	fields := []struct{ name, value string }{
		{"kind", k.listed.kind()},
		{"namespace", k.listed.Namespace},
		{"name", k.listed.Name},
		{"in", k.namespace},
		{"until", k.until.UTC().Format("2006-01-02T15:04:05Z07:00")},
	}
	hidden := markup("")
	for _, f := range fields {
		hidden += renderHidden(f.name, f.value)
	}
	return fill(`%v<main id="main" tabindex="-1">
<h2>Keep %v awake until %v?</h2>
<p>%v %v in %v. Objects that the schedule has stopped are started at once. Manual stops stay in effect. Your user name is recorded.</p>
<ul>%v</ul>
<form method="post" action="keep-awake">%v
<p class="buttons"><a href="schedules">Cancel</a> <button class="primary" type="submit">Keep awake</button></p>
</form>
</main>
</body>
</html>
`, renderScheduleHead("Torpor: keep awake", user), chooseMarkup(len(k.members) == 1, "one object", fill(`%v objects`, len(k.members))), k.untilText(),
		k.listed.kind(), k.listed.Name, k.namespace,
		fillEach(k.listNames(), func(name string) markup { return fill(`<li>%v</li>`, name) }), hidden)
}

func renderHidden(name, value string) markup {
	return fill(`<input type="hidden" name="%v" value="%v">`, name, value)
}

// renderScheduleForm renders the form that creates a Slumber. The form is expanded if it has a preview or was rejected.
func renderScheduleForm(f scheduleForm, hasProblem bool, namespaces []string) markup {
	isOpen := f.YAML != "" || hasProblem && f.Name+f.Namespace != ""
	check := func(name string, all, chosen []string) markup {
		return fillEach(all, func(value string) markup {
			return fill(`<label class="check"><input type="checkbox" name="%v" value="%v"%v> %v</label>`, name, value,
				chooseMarkup(slices.Contains(chosen, value), " checked", ""), value)
		})
	}
	return fill(`<details id="create"%v><summary>New schedule</summary>
<form method="post" action="schedule-preview">
<div class="fields">
<label>Name <input name="name" value="%v" required maxlength="63" autocomplete="off" placeholder="nights"></label>
<label>Namespace <input name="namespace" value="%v" required maxlength="63" autocomplete="off" list="namespaces"></label>
<datalist id="namespaces">%v</datalist>
<label>Stopped from <input type="time" name="from" value="%v" required></label>
<label>to <input type="time" name="to" value="%v" required></label>
<label>Time zone <input name="zone" value="%v" required maxlength="64" autocomplete="off" placeholder="Europe/Berlin" list="zones"></label>
<datalist id="zones"></datalist>
<label>Labels of the objects <input name="selector" value="%v" maxlength="512" autocomplete="off" placeholder="team=a; all objects if empty"></label>
<label>Why <input name="reason" value="%v" maxlength="512" autocomplete="off" placeholder="shown to other users"></label>
</div>
<fieldset><legend>Days on which a stop begins and ends</legend>%v</fieldset>
<fieldset><legend>Kinds of the objects</legend>%v</fieldset>
<p class="hint">With Monday to Friday, 19:00 to 07:00 stops the objects every night from Monday, and from Friday 19:00 to Monday 07:00.</p>
<p class="buttons"><button class="primary" type="submit">Preview</button></p>
</form>
%v</details>`, chooseMarkup(isOpen, " open", ""), f.Name, f.Namespace,
		fillEach(namespaces, func(name string) markup { return fill(`<option value="%v"></option>`, name) }),
		f.From, f.To, f.Zone, f.Selector, f.Reason, check("day", weekdays(), f.Days), check("kind", offeredKinds(), f.Kinds), renderPreview(f))
}

// renderPreview renders the YAML and the next changes of a Slumber, and the button that creates it.
func renderPreview(f scheduleForm) markup {
	if f.YAML == "" {
		return ""
	}
	hidden := markup("")
	values := f.values()
	for _, name := range []string{"name", "namespace", "from", "to", "zone", "selector", "reason", "day", "kind"} {
		hidden += fillEach(values[name], func(value string) markup { return renderHidden(name, value) })
	}
	return fill(`<section id="preview" aria-label="Preview">
<h3>Preview</h3>
<p>The API server accepts the Slumber. Nothing is created yet.</p>
%v
<h4>Next changes</h4>
%v
<h4>YAML</h4>
<pre tabindex="0" aria-label="YAML of the Slumber"><code>%v</code></pre>
<form method="post" action="schedule-create">%v
<p class="buttons"><button class="primary" type="submit">Create</button></p>
</form>
</section>
`, renderWeek(f.Week, fmt.Sprintf("Slumber %s/%s", f.Namespace, f.Name), f.Zone), renderChanges(f.Next, false, false), f.YAML, hidden)
}
