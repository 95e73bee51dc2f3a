// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/liggitt/tabwriter"
	"golang.org/x/text/width"
)

const (
	// columnGap is the number of spaces between two columns.
	columnGap = 3
	// detailIndent is the number of spaces before the lines below a row.
	detailIndent = 2
)

// alignedTable writes rows in columns as wide as the widest cell so far. Later rows are aligned with the first rows,
// as with kubectl get --watch. On a terminal, no line exceeds the width of the terminal: the last columns of a wide
// table move to lines below each row. Other outputs get unbroken lines, which scripts can search.
type alignedTable struct {
	out      io.Writer
	headings []string
	// terminalWidth returns the width of the terminal. It returns 0 if the output is not a terminal.
	terminalWidth func() int
	// isColoured is true if cells have colours, in addition to their text.
	isColoured bool
	columns    *tabwriter.Writer
	// widths are the widths of the columns so far. They are nil until the headings are written.
	widths []int
}

func newAlignedTable(out io.Writer, headings ...string) *alignedTable {
	return &alignedTable{
		out: out, headings: headings,
		terminalWidth: func() int { return terminalWidth(out) },
		isColoured:    allowsColours(out, os.Getenv),
		columns:       tabwriter.NewWriter(out, 0, 0, columnGap, ' ', tabwriter.RememberWidths),
	}
}

// write writes rows, preceded by the headings on the first call.
func (t *alignedTable) write(rows [][]string) error {
	isFirst := t.widths == nil
	if isFirst {
		t.widths = make([]int, len(t.headings))
	}
	for _, cells := range append([][]string{t.headings}, rows...) {
		for i, cell := range cells {
			t.widths[i] = max(t.widths[i], displayWidth(cell))
		}
	}
	out, lines := t.out, []string{}
	if limit := t.terminalWidth(); limit > 0 {
		lines = t.fitLines(rows, limit, isFirst)
	} else {
		out = t.columns
		if isFirst {
			lines = append(lines, strings.Join(t.headings, "\t"))
		}
		for _, cells := range rows {
			lines = append(lines, strings.Join(cells, "\t"))
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	if err := t.columns.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// fitLines lays out rows in lines of at most limit characters. The columns that do not fit are printed below each
// row as details.
func (t *alignedTable) fitLines(rows [][]string, limit int, hasHeadings bool) []string {
	n := t.countFitting(limit)
	var lines []string
	begin := func(cells []string) {
		if n == 1 { // The only column may be wider than the terminal.
			lines = append(lines, wrapWords(cells[0], limit)...)
			return
		}
		lines = append(lines, t.align(cells[:n]))
	}
	if hasHeadings {
		begin(t.headings)
	}
	for _, cells := range rows {
		begin(cells)
		lines = append(lines, listDetails(t.headings[n:], cells[n:], limit)...)
	}
	return lines
}

// countFitting returns how many columns fit into a line, but at least one.
func (t *alignedTable) countFitting(limit int) int {
	total := -columnGap
	for i, column := range t.widths {
		if total += columnGap + column; total > limit && i > 0 {
			return i
		}
	}
	return len(t.widths)
}

// align pads cells to the widths of their columns.
func (t *alignedTable) align(cells []string) string {
	var line strings.Builder
	for i, cell := range cells {
		gap := strings.Repeat(" ", t.widths[i]-displayWidth(cell)+columnGap)
		if colour := colourOf(t.headings[i], cell); t.isColoured && colour != "" {
			cell = colour + cell + plain
		}
		line.WriteString(cell + gap)
	}
	return strings.TrimRight(line.String(), " ")
}

// listDetails returns the lines below a row: the non-empty cells, each after its heading in lower case. A cell that
// does not fit starts on a new line.
func listDetails(headings, cells []string, limit int) (lines []string) {
	limit = max(limit-detailIndent, 1)
	line := ""
	end := func() {
		for _, part := range wrapWords(line, limit) {
			lines = append(lines, strings.Repeat(" ", detailIndent)+part)
		}
		line = ""
	}
	for i, cell := range cells {
		detail := strings.ToLower(headings[i]) + " " + cell
		switch {
		case cell == "-":
			continue
		case line == "":
			line = detail
		case displayWidth(line+"; "+detail) <= limit:
			line += "; " + detail
		default:
			end()
			line = detail
		}
	}
	end()
	return lines
}

// wrapWords breaks a text into lines. It breaks a word only if the word is longer than a line.
func wrapWords(text string, limit int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && displayWidth(line+" "+word) <= limit {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for displayWidth(word) > limit {
			head := cutWord(word, limit)
			lines, word = append(lines, head), word[len(head):]
		}
		line = word
	}
	if line == "" {
		return lines
	}
	return append(lines, line)
}

// cutWord returns the part of a word that fits into a line, but at least one character.
func cutWord(word string, limit int) string {
	taken := 0
	for i, r := range word {
		if taken += runeWidth(r); taken > limit && i > 0 {
			return word[:i]
		}
	}
	return word
}

// displayWidth returns the number of terminal columns that a text takes.
func displayWidth(text string) (columns int) {
	for _, r := range colourSequence.ReplaceAllString(text, "") {
		columns += runeWidth(r)
	}
	return columns
}

func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return 2
	}
	return 1
}
