// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
)

func statusHeadings() []string {
	return []string{"NAME", "PART", "STATE", "SINCE", "BY", "REASON", "UNTIL", "NEXT"}
}

func statusRows() [][]string {
	return [][]string{
		{
			"clusterdeployment/fleet", "machines", "Hibernating", "26h", "alice@example.com", "no budget until Monday",
			"2026-11-27T06:00:00Z (2h overdue)", "should have started by itself: check whether the manager runs",
		},
		{"cfapp/shop", "app", "stopped", "3h", "carol@example.com", "-", "-", "kubectl torpor start -n default cfapp/5a3c"},
		{"cfapp/cart", "app", "running", "-", "-", "-", "-", "-"},
	}
}

func writeTable(t *testing.T, limit int, headings []string, writes ...[][]string) string {
	t.Helper()
	var out bytes.Buffer
	table := newAlignedTable(&out, headings...)
	table.terminalWidth = func() int { return limit }
	for _, rows := range writes {
		testenv.ExpectNoError(t, table.write(rows))
	}
	return out.String()
}

func TestTablesFitIntoTheTerminal(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		limit    int
		headings []string
		rows     [][]string
		want     string
	}{
		"a terminal of 80 columns: the last columns are folded below their rows": {80, statusHeadings(), statusRows(), `
NAME                      PART       STATE         SINCE   BY
clusterdeployment/fleet   machines   Hibernating   26h     alice@example.com
  reason no budget until Monday; until 2026-11-27T06:00:00Z (2h overdue)
  next should have started by itself: check whether the manager runs
cfapp/shop                app        stopped       3h      carol@example.com
  next kubectl torpor start -n default cfapp/5a3c
cfapp/cart                app        running       -       -
`},
		"a terminal of 40 columns: most columns are folded below their rows": {40, statusHeadings(), statusRows(), `
NAME                      PART
clusterdeployment/fleet   machines
  state Hibernating; since 26h
  by alice@example.com
  reason no budget until Monday
  until 2026-11-27T06:00:00Z (2h
  overdue)
  next should have started by itself:
  check whether the manager runs
cfapp/shop                app
  state stopped; since 3h
  by carol@example.com
  next kubectl torpor start -n default
  cfapp/5a3c
cfapp/cart                app
  state running
`},
		"output that is not a terminal: rows are not folded": {0, statusHeadings()[:5], [][]string{statusRows()[0][:5]}, `
NAME                      PART       STATE         SINCE   BY
clusterdeployment/fleet   machines   Hibernating   26h     alice@example.com
`},
		"a name that is wider than the terminal is broken": {12, []string{"NAME", "STATE"}, [][]string{{"cfapp/a-very-long-name", "running"}}, `
NAME
cfapp/a-very
-long-name
  state
  running
`},
		"characters of double width count as two columns": {22, []string{"NAME", "REASON", "BY"}, [][]string{{"a", "月曜日まで", "b"}, {"b", "e\u0301", "c"}}, `
NAME   REASON       BY
a      月曜日まで   b
` + "b      e\u0301            c\n"},
		"a table without rows: only the heading": {80, []string{"NAME", "STATE"}, nil, `
NAME   STATE
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.ExpectEqual(t, "the table", strings.TrimPrefix(row.want, "\n"), writeTable(t, row.limit, row.headings, row.rows))
		})
	}
}

// TestNoLineIsWiderThanTheTerminal checks terminals of 4 to 500 columns, with words that are wider than the terminal.
func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	rows := append(statusRows(), []string{"cfapp/" + strings.Repeat("x", 64), "app", "running", "-", strings.Repeat("月", 40), strings.Repeat("y", 300), "-", "-"})
	for limit := 4; limit <= 500; limit++ {
		text := writeTable(t, limit, statusHeadings(), rows)
		for line := range strings.Lines(text) {
			if found := displayWidth(strings.TrimRight(line, "\n")); found > limit {
				t.Errorf("expected at most %d columns, found %d: %s", limit, found, line)
			}
		}
		joined := strings.Join(strings.Fields(text), "")
		for _, word := range []string{"2hoverdue", strings.Repeat("y", 300), "cfapp/5a3c", strings.Repeat("月", 40)} {
			if !strings.Contains(joined, word) {
				t.Errorf("%d columns: expected that %s is shown, found %s", limit, word, text)
			}
		}
	}
}

// TestLaterRowsLineUp writes rows one by one, as status --watch does, and expects aligned columns.
func TestLaterRowsLineUp(t *testing.T) {
	t.Parallel()
	headings, first, second := []string{"NAME", "STATE"}, [][]string{{"cfapp/shop", "running"}}, [][]string{{"cfapp/a", "stopped"}}
	const want = "NAME         STATE\ncfapp/shop   running\ncfapp/a      stopped\n"
	for _, limit := range []int{0, 80} {
		testenv.ExpectEqual(t, fmt.Sprintf("%d columns", limit), want, writeTable(t, limit, headings, first, second))
	}
}

func TestFilesAreNoTerminal(t *testing.T) {
	t.Parallel()
	file, err := os.Create(t.TempDir() + "/out")
	testenv.ExpectNoError(t, err)
	testenv.ExpectEqual(t, "a file", 0, terminalWidth(file))
	testenv.ExpectNoError(t, file.Close())
	testenv.ExpectEqual(t, "a buffer", 0, terminalWidth(&bytes.Buffer{}))
}

// TestFoldedLines breaks texts that are not tables.
func TestFoldedLines(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		limit int
		line  string
		want  string
	}{
		"a pipe: the line is not broken":                              {0, strings.Repeat("x", 300), strings.Repeat("x", 300)},
		"a line that fits is unchanged":                               {20, "  found   a   b", "  found   a   b"},
		"a long line is broken between words":                         {20, "  found   one two three four", "  found   one two|    three four"},
		"a line as wide as the terminal is unchanged":                 {7, "one two", "one two"},
		"a space at the end of the terminal is replaced by the break": {3, "one two", "one|two"},
		"a word that is wider than the terminal is broken":            {8, "a " + strings.Repeat("b", 12), "a|  bbbbbb|  bbbbbb"},
		"characters of double width count as two columns":             {4, "月曜日", "月曜|  日"},
		"a terminal of one column breaks after each character":        {1, "ab", "a|b"},
		"an empty line is kept":                                       {5, "", ""},
		"a colour sequence takes no column":                           {3, red + "abc" + plain, red + "abc" + plain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.ExpectEqual(t, "the lines", row.want, strings.Join(foldLine(row.line, row.limit), "|"))
		})
	}
}

// TestTerminalWriterWritesWholeLines writes text in small pieces, as the help does.
func TestTerminalWriterWritesWholeLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &fittedWriter{out: &out, limit: func() int { return 8 }}
	for _, piece := range []string{"one ", "two three\nfo", "ur"} {
		n, err := w.Write([]byte(piece))
		testenv.ExpectNoError(t, err)
		testenv.ExpectEqual(t, "the bytes", len(piece), n)
	}
	testenv.ExpectEqual(t, "before the end", "one two\n  three\n", out.String())
	flushOutputs(w, &out)
	testenv.ExpectEqual(t, "at the end", "one two\n  three\nfour", out.String())
	testenv.ExpectEqual(t, "the width of the table", 8, terminalWidth(w))
}

// TestColoursRepeatTheText removes the colour sequences from a coloured table, and compares it with a plain table.
func TestColoursRepeatTheText(t *testing.T) {
	t.Parallel()
	rows := append(statusRows(), []string{"cfapp/stuck", "app", "starting", "-", "-", "-", "-", "it is stuck: no droplet"})
	var coloured bytes.Buffer
	table := newAlignedTable(&coloured, statusHeadings()...)
	table.terminalWidth, table.isColoured = func() int { return 300 }, true
	testenv.ExpectNoError(t, table.write(rows))
	for _, want := range []string{
		blue + "Hibernating" + plain, green + "running" + plain, yellow + "starting" + plain, red + "it is stuck: no droplet" + plain,
		yellow + "2026-11-27T06:00:00Z (2h overdue)" + plain,
	} {
		if !strings.Contains(coloured.String(), want) {
			t.Errorf("expected %q, found %q", want, coloured.String())
		}
	}
	testenv.ExpectEqual(t, "the text", writeTable(t, 300, statusHeadings(), rows), colourSequence.ReplaceAllString(coloured.String(), ""))
}

func TestColoursNeedATerminal(t *testing.T) {
	t.Parallel()
	terminal := &fittedWriter{limit: func() int { return 80 }}
	for name, row := range map[string]struct {
		out  io.Writer
		env  map[string]string
		want bool
	}{
		"a terminal: colours":                  {terminal, map[string]string{"TERM": "xterm"}, true},
		"a terminal with NO_COLOR: no colours": {terminal, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false},
		"a dumb terminal: no colours":          {terminal, map[string]string{"TERM": "dumb"}, false},
		"a terminal without TERM: no colours":  {terminal, nil, false},
		"a pipe or a file: no colours":         {&bytes.Buffer{}, map[string]string{"TERM": "xterm"}, false},
	} {
		testenv.ExpectEqual(t, name, row.want, allowsColours(row.out, func(name string) string { return row.env[name] }))
	}
}
