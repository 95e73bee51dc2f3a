// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strings"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestCommentsAboutTablesHaveOneLine(t *testing.T) {
	const head, joined = "#261129 1:00:00 server id 1 \tTable_map: `s`.`", "#261129 1:00:00 server id 1 \tTable_map: a table whose name has line breaks, mapped to number "
	for name, tt := range map[string]struct {
		names        []string
		output, want string
	}{
		"a name without a line break: unchanged":                                    {nil, head + "t` mapped to number 5\nBINLOG 'x'\n", head + "t` mapped to number 5\nBINLOG 'x'\n"},
		"a name with a line break: joined into one line":                            {[]string{"a\nb"}, head + "a\nb` mapped to number 5\nBINLOG 'x'\n", joined + "5\nBINLOG 'x'\n"},
		"a name that ends with a line break: joined into one line":                  {[]string{"a\n"}, head + "a\n` mapped to number 5\n", joined + "5\n"},
		"a name that begins with another name and a new line: joined into one line": {[]string{"a\nb", "a\nb` mapped to number 7\ndrop"}, head + "a\nb` mapped to number 7\ndrop` mapped to number 5\nx\n", joined + "5\nx\n"},
		"a name with the same first line as another name: joined into one line":     {[]string{"a\nb", "a\nc"}, head + "a\nc` mapped to number 5\n", joined + "5\n"},
		"the text of a statement: unchanged":                                        {[]string{"a\nb"}, "insert into t values ('" + head + "a\nb` mapped to number 5')\n", "insert into t values ('" + head + "a\nb` mapped to number 5')\n"},
		"a line longer than the buffer: unchanged, and the next comment is joined":  {[]string{"a\nb"}, strings.Repeat("x", lineBuffer) + "#\n" + head + "a\nb` mapped to number 5", strings.Repeat("x", lineBuffer) + "#\n" + joined + "5"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := &brokenComments{}
			for _, table := range append(tt.names, "plain") {
				broken.add("s", table)
			}
			var found strings.Builder
			testenv.ExpectNoError(t, guardComments(&found, strings.NewReader(tt.output), broken))
			if found.String() != tt.want {
				t.Errorf("expected %q, found %q", tt.want, found.String())
			}
		})
	}
}
