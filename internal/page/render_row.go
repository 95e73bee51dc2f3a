// SPDX-License-Identifier: Apache-2.0

package page

import "strings"

func renderRow(r rowView) markup {
	return fill(`<tr data-key="%v" data-sum="%v" data-state="%v" data-badge="%v">
<th scope="row">%v<a class="name" href="details?%v">%v</a>%v<span class="quiet">in %v</span><span class="quiet">%v</span></th>
<td><span class="badge %v"><span aria-hidden="true">%v</span> %v</span></td>
<td>%v</td>
<td class="by"%v>%v</td>
<td class="text">%v</td>
<td>%v</td>
<td class="text">%v%v</td>
<td class="number">%v%v</td>
<td class="act">%v</td>
</tr>`, r.Key, r.Sum, r.State, r.Badge,
		renderPick(r), r.address(), r.Title, renderObjectName(r), r.Namespace, renderKind(r),
		r.Badge, r.Symbol, r.State,
		renderTime(r.Since),
		fillUnlessEmpty(` title="%v"`, r.By), renderRequester(r.By),
		r.Reason,
		renderEnd(r),
		renderNext(r), fillUnlessEmpty(quietText, r.Detail),
		r.Saved, fillUnlessEmpty(quietText, r.SavedNote),
		renderButton(r))
}

const quietText = `<span class="quiet">%v</span>`

// renderObjectName renders the name of an object whose display name is different.
func renderObjectName(r rowView) markup {
	if r.Title == r.Name {
		return ""
	}
	return fill(quietText, r.Name)
}

func renderKind(r rowView) markup {
	switch {
	case r.APIGroup != "":
		return fill(`%v of %v`, r.Kind, r.APIGroup)
	case r.Part != "app" && r.Part != "machines":
		return fill(`%v · %v`, r.Kind, r.Part)
	default:
		return fill(`%v`, r.Kind)
	}
}

// renderTime renders a time. Without a time it returns nothing, and the style sheet shows a dash in the empty cell.
func renderTime(at *timeView) markup {
	if at == nil {
		return ""
	}
	return fill(`<time datetime="%v" title="%v">%v</time>`, at.Machine, at.Machine, at.Human)
}

// renderRequester renders a user name, with possible line breaks after its colons.
func renderRequester(name string) markup {
	return markup(strings.ReplaceAll(string(fill(`%v`, name)), ":", ":<wbr>")) // No escaped character contains a colon.
}

// renderEnd renders the end of the stop, whether it has passed, and its author.
func renderEnd(r rowView) markup {
	overdue := markup(` <span class="badge stuck"><span aria-hidden="true">!</span> overdue</span>`)
	return fill(`%v%v%v`, renderTime(r.Until), chooseMarkup(r.IsOverdue, overdue, ""),
		fillUnlessEmpty(`<span class="quiet">set by %v</span>`, r.UntilBy))
}

func renderNext(r rowView) markup {
	switch {
	case r.IsStuck:
		return fill(`<strong class="stuck">Stuck:</strong> %v`, strings.TrimPrefix(r.Next, "it is stuck: "))
	case r.StartsItself:
		return "starts by itself"
	case r.Next != "":
		return fill(`<span class="next">%v</span>`, r.Next)
	default:
		return ""
	}
}

func renderButton(r rowView) markup {
	if r.Verb == "" {
		return ""
	}
	return renderAction(r, r.Verb)
}

// renderAction renders the button for an action, which opens the dialog.
func renderAction(r rowView, action string) markup {
	verb := titleOf(action)
	return fill(`<button type="button" data-verb="%v" data-kind="%v" data-namespace="%v" data-name="%v" data-title="%v" data-part="%v"%v `+
		`aria-label="%v %v%v %v in %v: %v">%v…</button>`,
		action, r.KindName, r.Namespace, r.Name, r.Title, r.Part, renderStopData(r),
		verb, strings.ToLower(r.Kind), fillUnlessEmpty(` of %v`, r.APIGroup), r.Title, r.Namespace, r.Part, verb)
}

// renderStopData renders the reason and the end of the current stop, so Undo can request the same stop after a start.
func renderStopData(r rowView) markup {
	if !r.Stopped {
		return ""
	}
	until := ""
	if r.Until != nil {
		until = r.Until.Machine
	}
	return fillUnlessEmpty(` data-reason="%v"`, r.Reason) + fillUnlessEmpty(` data-until="%v"`, until)
}

// renderPick renders the checkbox that selects a row for actions on several objects.
func renderPick(r rowView) markup {
	if r.Verb != stopVerb && r.Verb != startVerb {
		return ""
	}
	return fill(`<input type="checkbox" class="pick" aria-label="Select %v%v %v in %v: %v">`,
		strings.ToLower(r.Kind), fillUnlessEmpty(` of %v`, r.APIGroup), r.Title, r.Namespace, r.Part)
}
