// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html"
	"strings"
)

// markup is HTML in which all values are escaped.
//
// The page does not use html/template. That package calls methods by name, so the linker would keep every exported
// method of the manager and double the size of its binary. test/arch checks this.
type markup string

// fill replaces each %v in a format with a value. It escapes all values that are not markup, so they are safe as text
// and as quoted attribute values. The format must be a constant in this package.
func fill(format string, values ...any) markup {
	escaped := make([]any, len(values))
	for i, value := range values {
		if trusted, isMarkup := value.(markup); isMarkup {
			escaped[i] = string(trusted)
			continue
		}
		escaped[i] = html.EscapeString(strings.ReplaceAll(fmt.Sprint(value), "\x00", "\ufffd"))
	}
	return markup(fmt.Sprintf(format, escaped...))
}

// fillEach renders each value and joins the results.
func fillEach[T any](values []T, render func(T) markup) markup {
	var all strings.Builder
	for _, value := range values {
		all.WriteString(string(render(value)))
	}
	return markup(all.String())
}

// fillUnlessEmpty fills the format with the value. For an empty value it returns nothing.
func fillUnlessEmpty(format, value string) markup {
	if value == "" {
		return ""
	}
	return fill(format, value)
}

// chooseMarkup returns yes if the condition is true, otherwise no.
func chooseMarkup(condition bool, yes, no markup) markup {
	if condition {
		return yes
	}
	return no
}
