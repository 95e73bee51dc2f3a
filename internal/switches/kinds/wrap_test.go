// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// pageWidth and commentWidth are the columns at which lines of pages and of comments wrap.
	pageWidth    = 100
	commentWidth = 120
)

var (
	// pageBegin matches the start of a paragraph or of an item in a page, and commentBegin that of a line of a comment.
	pageBegin    = regexp.MustCompile(`^ *(?:(?:[-*]|\d+\.) )?`)
	commentBegin = regexp.MustCompile(`^\s*(?://|#) ?`)
	// pageEnd and commentEnd match a line that does not continue a paragraph.
	pageEnd    = regexp.MustCompile("^ *(?:$|[|#<]|```|(?:[-*]|\\d+\\.) )")
	commentEnd = regexp.MustCompile(`^(?:$|[+-])`)
	// lineBreak matches a line break in a paragraph, and the beginning of the next line of a comment.
	lineBreak = regexp.MustCompile(`\s*\n\s*(?:(?://|#) ?)?|\s+`)
)

// textSpan is a part of a text, from the offset of its first byte to the offset after its last byte.
type textSpan struct{ start, end int }

// foldSpace returns a text without line breaks and beginnings of comments.
func foldSpace(text string) string { return lineBreak.ReplaceAllString(text, " ") }

// replaceInText replaces a part of a text, and wraps the rest of its paragraph again. Tables and code do not wrap.
func replaceInText(text string, at textSpan, with, name string) string {
	text = text[:at.start] + with + text[at.end:]
	start := strings.LastIndexByte(text[:at.start], '\n') + 1
	lines := strings.SplitAfter(text[start:], "\n")
	begin, isEnd, width := commentBegin, commentEnd, commentWidth
	if filepath.Ext(name) == ".md" {
		begin, isEnd, width = pageBegin, pageEnd, pageWidth
		isCode := strings.Count(text[:start], "```")%2 == 1
		if isCode || strings.HasPrefix(lines[0], "|") {
			return text
		}
	}
	first := begin.FindString(lines[0])
	if begin == commentBegin && (first == "" || commentEnd.MatchString(lines[0][len(first):])) {
		return text
	}
	next := first
	if begin == pageBegin {
		next = strings.Repeat(" ", len(first))
	}
	words, n := strings.Fields(lines[0][len(first):]), 1
	for ; n < len(lines) && lines[n] != ""; n++ {
		rest, isSame := strings.CutPrefix(lines[n], next)
		if !isSame || isEnd.MatchString(strings.TrimSuffix(rest, "\n")) {
			break
		}
		words = append(words, strings.Fields(rest)...)
	}
	return text[:start] + wrap(words, first, next, width) + strings.Join(lines[n:], "")
}

// wrap breaks text into lines of at most the given width, unless a word is longer. The first line and the others begin
// with different prefixes.
func wrap(words []string, first, next string, width int) string {
	var wrapped strings.Builder
	line := first + words[0]
	for _, word := range words[1:] {
		if utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")+" "+word) > width {
			wrapped.WriteString(line + "\n")
			line = next + word
			continue
		}
		line += " " + word
	}
	return wrapped.String() + line + "\n"
}
