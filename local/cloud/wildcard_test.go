// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzWildcard: whatever a value is, escaping it makes it mean itself alone, and a star after it any longer one.
func FuzzWildcard(f *testing.F) {
	for _, seed := range []string{"", "a*b?c", `\`, "a.b[", "line\nline", `\\*`} {
		f.Add(seed)
	}
	escape := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`)
	f.Fuzz(func(t *testing.T, value string) {
		compileWildcard(value)
		if !utf8.ValidString(value) {
			return
		}
		exact := compileWildcard(escape.Replace(value))
		if !exact.MatchString(value) || exact.MatchString(value+"x") || exact.MatchString("x"+value) {
			t.Errorf("%q escaped is %s", value, exact)
		}
		if !compileWildcard(escape.Replace(value) + "*").MatchString(value + "\nmore") {
			t.Errorf("%q with a star does not match a longer value", value)
		}
	})
}
