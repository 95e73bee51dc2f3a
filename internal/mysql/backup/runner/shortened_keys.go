// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
)

// shortenedKeys passes a dump through and corrects CREATE TABLE statements. In a SQL mode that is not strict, MySQL
// shortens a key on an expression that is too long, and SHOW CREATE TABLE shows its length, as in KEY ((hex(c))(191)).
// MySQL does not accept this length in a statement. Without it, MySQL shortens the key again.
type shortenedKeys struct {
	lines *bufio.Reader
	// rest is the part of the current piece that was not returned yet, and err is returned after it.
	rest []byte
	err  error
	// isContinued is true after a piece without the end of its line. isPrepared is true after the line in front of a
	// CREATE TABLE statement.
	isContinued, isPrepared bool
	// isCreate is true inside a CREATE TABLE statement, and quotes tracks the quotes in it.
	isCreate bool
	quotes   quoteScanner
}

func newShortenedKeys(from io.Reader) *shortenedKeys {
	return &shortenedKeys{lines: bufio.NewReaderSize(from, lineBuffer)}
}

// Read implements io.Reader.
func (s *shortenedKeys) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		piece, err := s.lines.ReadSlice('\n')
		if s.rest = s.correct(piece); !errors.Is(err, bufio.ErrBufferFull) {
			s.err = err
		}
		s.isContinued = err != nil
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// beforeCreate is the line that mysqldump and MySQL Shell write in front of a CREATE TABLE statement.
const beforeCreate = "/*!50503 SET character_set_client = utf8mb4 */;\n"

// correct returns a line, or a piece of a long line, without the lengths of keys on expressions.
func (s *shortenedKeys) correct(piece []byte) []byte {
	if !s.isCreate {
		s.isCreate = s.isPrepared && bytes.HasPrefix(piece, []byte("CREATE TABLE "))
		s.isPrepared = !s.isContinued && string(piece) == beforeCreate
	}
	if !s.isCreate {
		return piece
	}
	return s.withoutLengths(piece)
}

// keyLength matches the length of a key. In a statement that MySQL accepts, a number in parentheses does not follow a
// closing parenthesis.
var keyLength = regexp.MustCompile(`^\(\d+\)`)

func (s *shortenedKeys) withoutLengths(piece []byte) []byte {
	var kept []byte
	for i := 0; i < len(piece); i++ {
		b := piece[i]
		kept = append(kept, b)
		switch {
		case !s.quotes.isOutside(b):
		case b == ')':
			i += len(keyLength.Find(piece[i+1:]))
		case b == ';':
			s.isCreate = false
			return append(kept, piece[i+1:]...)
		}
	}
	return kept
}
