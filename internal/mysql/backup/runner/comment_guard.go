// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// brokenComments holds the comments that mysqlbinlog writes about tables whose names contain line breaks. Everything
// after the first line of such a comment would be executed as a statement.
type brokenComments struct {
	mu    sync.Mutex
	texts []string
}

// add records the name of a table that is about to be passed to mysqlbinlog.
func (b *brokenComments) add(schema, table string) {
	if !strings.Contains(schema+table, "\n") {
		return
	}
	text := fmt.Sprintf("\tTable_map: `%s`.`%s` mapped to number ", schema, table)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.texts, text) {
		b.texts = append(b.texts, text)
	}
}

// find returns the longest of the texts whose first line is the end of the given line and whose other lines follow that
// line.
func (b *brokenComments) find(line []byte, follows func(rest string) bool) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	longest := ""
	for _, text := range b.texts {
		first, rest, _ := strings.Cut(text, "\n")
		if len(text) > len(longest) && bytes.HasSuffix(line, []byte(first+"\n")) && follows(rest) {
			longest = text
		}
	}
	return longest
}

// guardComments copies the output of mysqlbinlog, and puts each comment about a table on one line.
func guardComments(to io.Writer, from io.Reader, broken *brokenComments) error {
	lines := bufio.NewReaderSize(from, lineBuffer)
	for isStart := true; ; {
		// A line that is longer than the buffer is read in pieces. Comments are shorter than the buffer.
		piece, err := lines.ReadSlice('\n')
		if isStart && len(piece) > 0 && piece[0] == '#' {
			piece = broken.join(bytes.Clone(piece), lines)
		}
		isStart = err == nil && bytes.HasSuffix(piece, []byte("\n"))
		if _, writeErr := to.Write(piece); writeErr != nil {
			return fmt.Errorf("copy the binary log: %w", writeErr)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read the output of mysqlbinlog: %w", err)
		}
	}
}

// join replaces the first line of a multi-line comment. It consumes the other lines except the end of the last one.
func (b *brokenComments) join(line []byte, following *bufio.Reader) []byte {
	text := b.find(line, func(rest string) bool {
		next, _ := following.Peek(len(rest)) // If fewer bytes follow, they do not match.
		return string(next) == rest
	})
	if text == "" {
		return line
	}
	first, rest, _ := strings.Cut(text, "\n")
	_, _ = following.Discard(len(rest)) // These bytes were peeked before.
	return append(bytes.TrimSuffix(line, []byte(first+"\n")), "\tTable_map: a table whose name has line breaks, mapped to number "...)
}
