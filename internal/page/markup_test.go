// SPDX-License-Identifier: Apache-2.0

package page

import (
	"strings"
	"testing"
)

func TestEveryValueOfARowIsEscaped(t *testing.T) {
	const hostile = `"><script>'&`
	row := string(renderRow(rowView{
		Key: hostile, Sum: hostile, Kind: hostile, APIGroup: hostile, KindName: hostile, Namespace: hostile, Name: hostile,
		Title: "Z" + hostile, Part: hostile, State: hostile, Badge: hostile, Symbol: hostile, By: hostile, Reason: hostile, UntilBy: hostile,
		Next: hostile, Detail: hostile, Saved: hostile, SavedNote: hostile, Verb: hostile,
		Since: &timeView{Machine: hostile, Human: hostile}, Until: &timeView{Machine: hostile, Human: hostile},
	}))
	if strings.Contains(row, "<script>") || strings.Contains(row, `""`) || strings.Contains(row, `'&`) {
		t.Errorf("expected every value to be escaped, found:\n%s", row)
	}
	if escaped := "&#34;&gt;&lt;script&gt;&#39;&amp;"; strings.Count(row, escaped) < 20 {
		t.Errorf("expected at least 20 values as %s, found %d:\n%s", escaped, strings.Count(row, escaped), row)
	}
}
