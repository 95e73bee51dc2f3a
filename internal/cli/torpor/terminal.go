// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/torpor-dev/torpor/internal/stop/preflight"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// fittedWriter writes to a terminal. It breaks lines that are wider than the terminal between words.
type fittedWriter struct {
	out   io.Writer
	limit func() int

	mu      sync.Mutex
	pending []byte
}

// fitToTerminal returns a writer whose lines fit into the terminal. Other outputs get unbroken lines, which scripts
// can search.
func fitToTerminal(out io.Writer) io.Writer {
	if terminalWidth(out) == 0 {
		return out
	}
	return &fittedWriter{out: out, limit: func() int { return terminalWidth(out) }}
}

// Write implements io.Writer. The part after the last line break is written with the next line, or by flush.
func (w *fittedWriter) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = append(w.pending, text...)
	end := bytes.LastIndexByte(w.pending, '\n') + 1
	whole := string(w.pending[:end])
	w.pending = append([]byte(nil), w.pending[end:]...)
	if err := w.writeLines(whole); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (w *fittedWriter) writeLines(text string) error {
	var fitted strings.Builder
	for line := range strings.Lines(text) {
		for _, part := range foldLine(strings.TrimSuffix(line, "\n"), w.limit()) {
			fitted.WriteString(part + "\n")
		}
	}
	if _, err := io.WriteString(w.out, fitted.String()); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// flush writes the last line if it has no line break.
func (w *fittedWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) > 0 {
		// If the output is closed, the error cannot be shown either.
		_, _ = w.out.Write(w.pending)
		w.pending = nil
	}
}

// flushOutputs calls flush for each output that fitToTerminal has returned.
func flushOutputs(outputs ...io.Writer) {
	for _, out := range outputs {
		if w, isFitted := out.(*fittedWriter); isFitted {
			w.flush()
		}
	}
}

// unfitted returns the output for machine-readable data, whose lines must not be broken.
func unfitted(out io.Writer) io.Writer {
	if w, isFitted := out.(*fittedWriter); isFitted {
		return w.out
	}
	return out
}

// foldLine breaks a line that is wider than limit. The following lines are indented two columns more than the first
// one, if there is room.
func foldLine(line string, limit int) (lines []string) {
	if limit <= 0 || displayWidth(line) <= limit {
		return []string{line}
	}
	indent := len(line) - len(strings.TrimLeft(line, " "))
	hanging := strings.Repeat(" ", indent+detailIndent)
	if len(hanging)+2 > limit { // A character may take two columns.
		hanging = ""
	}
	for displayWidth(line) > limit {
		head := cutWord(line, limit)
		// Break at the last space after the indent, or inside a word that is wider than the terminal.
		if at := strings.LastIndexByte(line[:min(len(head)+1, len(line))], ' '); strings.TrimSpace(line[:max(at, 0)]) != "" {
			head = line[:at]
		}
		lines = append(lines, strings.TrimRight(head, " "))
		line = hanging + strings.TrimLeft(line[len(head):], " ")
	}
	if strings.TrimSpace(line) == "" {
		return lines
	}
	return append(lines, line)
}

// terminalWidth returns the number of characters in a line of the terminal, or 0 for other outputs.
func terminalWidth(out io.Writer) int {
	if w, isFitted := out.(*fittedWriter); isFitted {
		return w.limit()
	}
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// allowsColours reports whether a terminal shows colours. Users disable colours with NO_COLOR
// (https://no-color.org).
func allowsColours(out io.Writer, env func(string) string) bool {
	kind := env("TERM")
	return terminalWidth(out) > 0 && env("NO_COLOR") == "" && kind != "" && kind != "dumb"
}

// The colours of cells. A colour only repeats information that the text of the cell contains.
const (
	red, green, yellow, blue = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m"
	plain                    = "\x1b[0m"
)

// colourSequence matches the sequences above, which take no space on a terminal.
var colourSequence = regexp.MustCompile("\x1b\\[[0-9]+m")

// colourOf returns the colour of a cell below a heading, or "" if the cell has no colour.
func colourOf(heading, cell string) string {
	switch {
	case heading == "STATE":
		return colourOfState(cell)
	case heading == "UNTIL" && strings.HasSuffix(cell, "overdue)"):
		return yellow
	case heading == "NEXT" && strings.HasPrefix(cell, kinds.StuckPrefix):
		return red
	case heading == "SEVERITY" && cell == string(preflight.Blocking):
		return red
	case heading == "SEVERITY":
		return yellow
	default:
		return ""
	}
}

func colourOfState(state string) string {
	switch strings.ToLower(state) {
	case "running":
		return green
	case "stopped", "hibernating":
		return blue
	case "unknown", "deleted", "-":
		return ""
	default:
		return yellow
	}
}
