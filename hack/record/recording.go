// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// columns is the width of the terminal, at which longer lines are wrapped.
const (
	columns   = 100
	idleLimit = 2 // In seconds; a player shortens longer pauses to this time.
)

// recording is the recorded output of a command. Only one goroutine may write to it.
type recording struct {
	clk   clock.PassiveClock
	start time.Time
	out   io.Writer
	rest  string // The start of a line that has not ended yet.
	lines []timedLine
}

type timedLine struct {
	after time.Duration
	text  string
}

func newRecording(clk clock.PassiveClock, out io.Writer) *recording {
	return &recording{clk: clk, start: clk.Now(), out: out}
}

// Write implements io.Writer. It records only complete lines, so that no character is split.
func (r *recording) Write(p []byte) (int, error) {
	lines := strings.Split(r.rest+string(p), "\n")
	r.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		r.lines = append(r.lines, timedLine{r.clk.Since(r.start), line})
	}
	return r.out.Write(p)
}

// allLines returns the recorded lines, including the last one even if it has not ended.
func (r *recording) allLines() []timedLine {
	if r.rest == "" {
		return r.lines
	}
	return append(slices.Clip(r.lines), timedLine{r.clk.Since(r.start), r.rest})
}

// formatCast returns an asciinema file of version 2: https://docs.asciinema.org/manual/asciicast/v2/
func (r *recording) formatCast(title string) (string, error) {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	header := map[string]any{"version": 2, "width": columns, "height": 30, "title": title, "idle_time_limit": idleLimit}
	if err := encoder.Encode(header); err != nil {
		return "", err
	}
	for _, line := range r.allLines() {
		if err := encoder.Encode([]any{line.after.Round(time.Millisecond).Seconds(), "o", line.text + "\r\n"}); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

// drawPicture returns an SVG of at most count rows, starting at the first line that begins with from, or of the last
// rows if from is empty.
func (r *recording) drawPicture(from string, count int) (string, error) {
	var rows []string
	first := -1
	for _, line := range r.allLines() {
		if from != "" && first < 0 && strings.HasPrefix(escapes.ReplaceAllString(line.text, ""), from) {
			first = len(rows)
		}
		rows = append(rows, wrapLine(line.text)...)
	}
	switch {
	case from == "":
		first = max(0, len(rows)-count)
	case first < 0:
		return "", fmt.Errorf("expected a line that begins with %q for the picture, found none", from)
	}
	return drawRows(rows[first:min(len(rows), first+count)]), nil
}

// escapes matches the escape sequences that set a colour.
var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// wrapLine splits a line into rows of the terminal. It repeats the colour of a coloured line on each row.
func wrapLine(text string) []string {
	colour := escapes.FindString(text)
	letters := []rune(escapes.ReplaceAllString(text, ""))
	rows := []string{}
	for len(letters) > columns {
		rows = append(rows, colour+string(letters[:columns]))
		letters = letters[columns:]
	}
	return append(rows, colour+string(letters))
}

const (
	letterWidth, rowHeight, margin = 8, 20, 16

	pictureHead = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d">
<rect width="100%%" height="100%%" rx="8" fill="#16181d"/>
<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13" fill="#d8dee9">
`
)

func drawRows(rows []string) string {
	var svg strings.Builder
	fmt.Fprintf(&svg, pictureHead, columns*letterWidth+2*margin, len(rows)*rowHeight+2*margin)
	for i, row := range rows {
		style := ""
		switch escapes.FindString(row) {
		case "\x1b[1m":
			style = ` font-weight="bold" fill="#88c0d0"`
		case "\x1b[32m":
			style = ` fill="#a3be8c"`
		}
		text := html.EscapeString(escapes.ReplaceAllString(row, ""))
		text = strings.ReplaceAll(text, " ", "\u00a0") // A browser collapses several spaces into one.
		fmt.Fprintf(&svg, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", margin, margin+14+i*rowHeight, style, text)
	}
	svg.WriteString("</g>\n</svg>\n")
	return svg.String()
}
