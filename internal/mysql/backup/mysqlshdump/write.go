// SPDX-License-Identifier: Apache-2.0

package mysqlshdump

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	// statementSize is the size at which an INSERT statement ends, as in mysqldump.
	statementSize = 1 << 20
	// maxRow limits the size of a row, which is kept in memory. MySQL does not accept larger statements.
	maxRow = 1 << 30
	// maxWindow limits the memory of decompression. MySQL Shell uses less.
	maxWindow  = 128 << 20
	bufferSize = 1 << 20
)

// session prepares a session in the same way as MySQL Shell before it loads a dump. In addition, it accepts dates such
// as February 31, which the source accepted with ALLOW_INVALID_DATES.
const session = "SET SQL_MODE = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', FOREIGN_KEY_CHECKS = 0, UNIQUE_CHECKS = 0, SQL_NOTES = 0;\n"

// Write writes the dump as SQL, with the comments of mysqldump in front of each object, and returns the number of rows
// in each table. archive is the archive from which Read read the dump. only, if set, is the name of the only schema to
// write.
func (d *Dump) Write(to io.Writer, archive io.Reader, only string) (map[TableName]int64, error) {
	w := &sqlWriter{Writer: bufio.NewWriterSize(to, bufferSize), rows: map[TableName]int64{}}
	w.text("SET @@SESSION.SQL_LOG_BIN = 0;\nSET @@GLOBAL.GTID_PURGED = /*!80000 '+'*/ '", d.GTIDSet, "';\n")
	if d.usesUTC {
		w.text("SET TIME_ZONE = '+00:00';\n")
	}
	w.text(session)
	wanted := d.schemasNamed(only)
	for _, s := range wanted {
		w.header("Current Database: ", s.name)
		w.text(s.create, "USE ", QuoteName(s.name), ";\n")
		for _, t := range s.tables {
			w.header("Table structure for table ", t.Table)
			w.text(t.definition, "\n", session)
		}
	}
	if err := d.writeRows(w, archive, only); err != nil {
		return nil, err
	}
	for _, s := range wanted {
		w.use(s.name)
		for _, v := range s.views {
			w.header("Temporary view structure for view ", v.name)
			w.text(v.standIn, "\n")
		}
	}
	for _, s := range wanted {
		w.use(s.name)
		w.text(s.definitions, "\n")
		for _, t := range s.tables {
			w.text(t.triggers, "\n")
		}
	}
	for _, s := range wanted { // A view may refer to views of other schemas.
		w.use(s.name)
		for _, v := range s.views {
			w.header("Final view structure for view ", v.name)
			w.text(v.definition, "\n")
		}
	}
	return w.rows, w.Flush()
}

func (d *Dump) schemasNamed(only string) []schema {
	var wanted []schema
	for _, s := range d.schemas {
		if only == "" || only == s.name {
			wanted = append(wanted, s)
		}
	}
	return wanted
}

// writeRows writes the rows in the order of the archive. It reads the archive a second time, because rows may precede
// the definitions of their tables.
func (d *Dump) writeRows(w *sqlWriter, archive io.Reader, only string) error {
	written := map[string]bool{}
	err := eachFile(archive, func(name string, _ int64, from io.Reader) error {
		t := d.chunks[name]
		if t == nil || only != "" && only != t.Schema {
			return nil
		}
		if written[name] {
			return formatErrorf("expected the file once in the archive, found it twice")
		}
		written[name] = true
		size, err := w.chunk(t, from)
		if want, isKnown := d.sizes[name]; err == nil && isKnown && want != size {
			err = formatErrorf("expected %d bytes of rows, found %d; the dump is damaged", want, size)
		}
		return err
	})
	if err != nil {
		return err
	}
	for name, t := range d.chunks {
		if !written[name] && (only == "" || only == t.Schema) {
			return formatErrorf("expected the file %s when the archive is read a second time, did not find it", name)
		}
	}
	for name, rows := range w.rows {
		if want, isKnown := d.rows[name.Schema][name.Table]; isKnown && want != rows {
			return formatErrorf("expected %d rows of table %s, found %d; the dump is damaged", want, name, rows)
		}
	}
	return nil
}

// sqlWriter writes SQL. It keeps the first error of its writer, and Flush returns it.
type sqlWriter struct {
	*bufio.Writer

	rows map[TableName]int64
	// line holds the row that is being written.
	line []byte
	// size is the size of the statement that is being written.
	size int
}

func (w *sqlWriter) text(parts ...string) {
	for _, p := range parts {
		_, _ = w.WriteString(p) // Flush returns the same error.
	}
}

// header writes the comment in front of an object, as in mysqldump. A line break in the name would end the comment, so
// it is replaced.
func (w *sqlWriter) header(what, name string) {
	w.text("--\n-- ", what, strings.ReplaceAll(QuoteName(name), "\n", " "), "\n--\n\n")
}

func (w *sqlWriter) use(schema string) {
	w.header("Current Database: ", schema)
	w.text("USE ", QuoteName(schema), ";\n")
}

// chunk writes the rows of one file and returns its decompressed size.
func (w *sqlWriter) chunk(t *table, packed io.Reader) (int64, error) {
	plain, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return 0, fmt.Errorf("decompress: %w", err)
	}
	defer plain.Close()
	w.use(t.Schema)
	w.header("Dumping data for table ", t.Table)
	lines := bufio.NewReaderSize(plain, bufferSize)
	insert := t.insertStatement()
	var size int64
	rows := w.rows[t.TableName]
	for w.size = 0; ; rows++ {
		if err := w.readLine(lines); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return size, err
		}
		size += int64(len(w.line)) + 1
		separator := ",\n("
		if w.size == 0 {
			separator = insert
		}
		w.text(separator)
		w.size += len(separator) + len(w.line)
		if err := w.row(t.columns); err != nil {
			return size, fmt.Errorf("row %d: %w", rows+1, err)
		}
		if w.size >= statementSize {
			w.text(";\n")
			w.size = 0
		}
	}
	if w.size > 0 {
		w.text(";\n")
	}
	w.rows[t.TableName] = rows
	return size, nil
}

func (t *table) insertStatement() string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = QuoteName(c.name)
	}
	return "INSERT INTO " + QuoteName(t.Table) + " (" + strings.Join(names, ",") + ") VALUES\n("
}

// readLine reads a row into line, without its line break. Line breaks in values are escaped.
func (w *sqlWriter) readLine(from *bufio.Reader) error {
	w.line = w.line[:0]
	for {
		piece, err := from.ReadSlice('\n')
		w.line = append(w.line, piece...)
		switch {
		case len(w.line) > maxRow:
			return formatErrorf("expected rows of at most %d bytes, found a longer one", maxRow)
		case err == nil:
			w.line = w.line[:len(w.line)-1]
			return nil
		case errors.Is(err, io.EOF) && len(w.line) > 0:
			return formatErrorf("expected a line break after the last row, found none; the dump is damaged")
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

func (w *sqlWriter) row(columns []column) error {
	rest, isMore := w.line, true
	for i, c := range columns {
		if !isMore {
			return formatErrorf("expected %d values, found %d", len(columns), i)
		}
		if i > 0 {
			_ = w.WriteByte(',') // Flush returns the same error.
		}
		var field []byte
		field, rest, isMore = bytes.Cut(rest, []byte("\t"))
		if err := w.value(field, c.encoding); err != nil {
			return fmt.Errorf("column %s: %w", QuoteName(c.name), err)
		}
	}
	if isMore {
		return formatErrorf("expected %d values, found more", len(columns))
	}
	return w.WriteByte(')')
}

// value writes a value as a literal.
func (w *sqlWriter) value(field []byte, encoding columnEncoding) error {
	switch {
	case string(field) == `\N`:
		w.text("NULL")
		return nil
	case len(field) == 0:
		w.text("''")
		return nil
	case encoding == plainText:
		return w.quoted(field)
	}
	digits, err := unescape(field)
	if err != nil {
		return err
	}
	w.text("0x")
	if encoding == base64Text {
		return w.decoded(digits)
	}
	for _, c := range digits {
		if !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
			return formatErrorf("expected hexadecimal digits, found other characters")
		}
	}
	_, err = w.Write(digits)
	return err
}

var errEscape = formatErrorf("expected a character after a backslash, found the end of the value")

// escaped returns the character that an escape sequence of LOAD DATA represents.
func escaped(c byte) byte {
	switch c {
	case '0':
		return 0
	case 'b':
		return '\b'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'Z':
		return 0x1a
	}
	return c
}

// quoted writes a text as a literal without line breaks.
func (w *sqlWriter) quoted(field []byte) error {
	_ = w.WriteByte('\'') // The writer keeps its first error and returns it below.
	for i := 0; i < len(field); i++ {
		c := field[i]
		if c == '\\' {
			if i++; i == len(field) {
				return errEscape
			}
			c = escaped(field[i])
		}
		switch c {
		case 0:
			w.text(`\0`)
		case '\n':
			w.text(`\n`)
		case '\r':
			w.text(`\r`)
		case 0x1a:
			w.text(`\Z`)
		case '\\', '\'':
			_ = w.WriteByte('\\') // The writer keeps its first error.
			_ = w.WriteByte(c)    // The writer keeps its first error.
		default:
			_ = w.WriteByte(c) // The writer keeps its first error.
		}
	}
	return w.WriteByte('\'')
}

// unescape replaces the escape sequences of a value in place, and removes the line breaks that MySQL adds to base64.
func unescape(field []byte) ([]byte, error) {
	plain := field[:0]
	for i := 0; i < len(field); i++ {
		c := field[i]
		if c == '\\' {
			if i++; i == len(field) {
				return nil, errEscape
			}
			c = escaped(field[i])
		}
		if c != '\n' {
			plain = append(plain, c)
		}
	}
	return plain, nil
}

// decoded writes base64 as hexadecimal digits, in blocks, so a large value is not in memory twice.
func (w *sqlWriter) decoded(text []byte) error {
	const block = 4096
	var plain [block / 4 * 3]byte
	var digits [2 * len(plain)]byte
	for len(text) > 0 {
		next := text[:min(block, len(text))]
		text = text[len(next):]
		n, err := base64.StdEncoding.Decode(plain[:], next)
		if err != nil || len(text) > 0 && n < len(plain) {
			return formatErrorf("expected base64, found other characters")
		}
		if _, err := w.Write(digits[:hex.Encode(digits[:], plain[:n])]); err != nil {
			return err
		}
	}
	return nil
}
