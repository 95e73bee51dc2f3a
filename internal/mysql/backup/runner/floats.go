// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
)

// valueKind is the form in which a dump contains the values of a column.
type valueKind string

const (
	floatValue valueKind = "float"
	// scaledValue is a FLOAT with a fixed number of decimals, which MySQL rounds to that number when it stores a value.
	scaledValue valueKind = "scaled"
	numberValue valueKind = "number"
	textValue   valueKind = "text"
	bytesValue  valueKind = "bytes"
)

// dumpedColumn is a column whose values a dump contains.
type dumpedColumn struct {
	name string
	kind valueKind
}

// floatTable is a table with FLOAT columns. It lists all columns except generated ones.
type floatTable struct {
	schema, name string
	columns      []dumpedColumn
}

func (t floatTable) isEqual(other floatTable) bool {
	return t.schema == other.schema && t.name == other.name && slices.Equal(t.columns, other.columns)
}

func (t floatTable) quotedName() string {
	return mysqlshdump.QuoteName(t.schema) + "." + mysqlshdump.QuoteName(t.name)
}

// query returns a query for all rows. The product of a FLOAT and a DOUBLE has the value of the FLOAT with all its
// digits. Without an index, the rows are in the order of the primary key.
func (t floatTable) query() string {
	var values []string
	for _, c := range t.columns {
		value := mysqlshdump.QuoteName(c.name)
		if c.kind == floatValue || c.kind == scaledValue {
			value += " * 1e0"
		}
		values = append(values, value)
	}
	return "select " + strings.Join(values, ", ") + " from " + t.quotedName() + " use index ()"
}

// insertHead returns the beginning of an INSERT statement, on a new line.
func (t floatTable) insertHead() string {
	var names []string
	for _, c := range t.columns {
		names = append(names, mysqlshdump.QuoteName(c.name))
	}
	return "\nINSERT INTO " + mysqlshdump.QuoteName(t.name) + " (" + strings.Join(names, ", ") + ") VALUES "
}

// floatTablesQuery returns a query for the columns of the tables with FLOAT columns, except generated columns.
// FLOAT(M,D) does not count, because MySQL prints it with all its decimals.
func floatTablesQuery(filter string) string {
	return `select table_schema, table_name, column_name, kind from (
 select table_schema, table_name, column_name, ordinal_position, case
   when data_type = 'float' then if(numeric_scale is null, 'float', 'scaled')
   when data_type in ('tinyint', 'smallint', 'mediumint', 'int', 'bigint', 'decimal', 'double', 'year') then 'number'
   when data_type in ('date', 'time', 'datetime', 'timestamp', 'json') or character_set_name <> 'binary' then 'text'
   else 'bytes' end as kind,
  max(data_type = 'float' and numeric_scale is null) over (partition by table_schema, table_name) as has_float
 from information_schema.columns where generation_expression = '' and table_schema not in ` + ownSchemas + filter + `) c
 where has_float and exists (select 1 from information_schema.tables t
  where t.table_schema = c.table_schema and t.table_name = c.table_name and t.table_type = 'BASE TABLE')
 order by table_schema, table_name, ordinal_position`
}

// listFloatTables lists tables with FLOAT columns, or only the given one.
func listFloatTables(ctx context.Context, c *sql.Conn, only ...floatTable) ([]floatTable, error) {
	filter, args := "", []any{}
	for _, t := range only {
		filter, args = " and table_schema = ? and table_name = ?", []any{t.schema, t.name}
	}
	rows, err := c.QueryContext(ctx, floatTablesQuery(filter), args...)
	if err != nil {
		return nil, fmt.Errorf("list FLOAT columns: the instance %s", describeError(err))
	}
	defer func() { _ = rows.Close() }() // rows.Err returns errors of the query.
	var all []floatTable
	for rows.Next() {
		var t floatTable
		var column dumpedColumn
		if err := rows.Scan(&t.schema, &t.name, &column.name, &column.kind); err != nil {
			return nil, fmt.Errorf("list FLOAT columns: %w", err)
		}
		if last := len(all) - 1; last >= 0 && all[last].schema == t.schema && all[last].name == t.name {
			all[last].columns = append(all[last].columns, column)
			continue
		}
		t.columns = []dumpedColumn{column}
		all = append(all, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list FLOAT columns: %w", err)
	}
	return all, nil
}

// floatRows replaces the rows of tables with FLOAT columns in a dump. MySQL prints a FLOAT with six significant digits,
// and mysqldump cannot change that. A FLOAT has up to nine.
type floatRows struct {
	snapshotSession
	server *mysqlServer
	// schemas lists the schemas of the dump in its order. missing lists the tables whose rows have not been found in
	// the dump yet.
	schemas []string
	missing []floatTable
	// mark is a random condition that is true for each row. mysqldump writes it into a comment before the rows of each
	// table. No definition in the dump can contain it.
	mark string
}

func openFloatRows(ctx context.Context, s *mysqlServer, what serverInventory) (*floatRows, error) {
	session, err := openSnapshotSession(ctx, s)
	if err != nil {
		return nil, err
	}
	return &floatRows{
		snapshotSession: session, server: s, schemas: what.Schemas, missing: slices.Clone(what.floats), mark: "/* " + rand.Text() + " */ true",
	}, nil
}

// copyDump copies the output of mysqldump, and replaces the rows of tables with FLOAT columns with exact rows.
func (f *floatRows) copyDump(ctx context.Context, to io.Writer, from io.Reader) error {
	lines := bufio.NewReaderSize(from, lineBuffer)
	schema, following := "", f.schemas
	for isStart := true; ; {
		// A line that is longer than the buffer is read in pieces. Comments are shorter than the buffer.
		piece, err := lines.ReadSlice('\n')
		if isStart && string(piece) == "-- WHERE:  "+f.mark+"\n" {
			if err := f.copyRows(ctx, to, lines, schema); err != nil {
				return err
			}
			continue
		}
		if isStart && len(following) > 0 && string(piece) == sectionLine(following[0]) {
			schema, following = following[0], following[1:]
		}
		isStart = err == nil
		if _, writeErr := to.Write(piece); writeErr != nil {
			return fmt.Errorf("copy the dump: %w", writeErr)
		}
		switch {
		case errors.Is(err, io.EOF):
			return f.checkMissing(ctx)
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// sectionLine returns the first line of the comment before the section of a schema.
func sectionLine(schema string) string {
	line, _, _ := strings.Cut(strings.TrimPrefix(mysqlshdump.QuoteName(schema), "`"), "\n")
	return schemaSection + line + "\n"
}

// checkMissing returns an error if the dump does not contain a table that still exists.
func (f *floatRows) checkMissing(ctx context.Context) error {
	for _, t := range f.missing {
		now, err := f.listNow(ctx, t)
		if err != nil {
			return err
		}
		if len(now) > 0 {
			return fmt.Errorf("expected the rows of %s in the dump, found none; the next attempt includes them", t.quotedName())
		}
	}
	return nil
}

// listNow lists a table as it is now. The snapshot may be older.
func (f *floatRows) listNow(ctx context.Context, t floatTable) ([]floatTable, error) {
	c, err := f.server.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: the instance %s", f.server.host, describeError(err))
	}
	defer func() { _ = c.Close() }() // The connection returns to the pool.
	return listFloatTables(ctx, c, t)
}

const (
	lockHead, lockTail = "\nLOCK TABLES `", "` WRITE;"
	insertKeywords     = "\nINSERT INTO "
	// maxShortStatement is more than the length of a statement that contains only the name of a table.
	maxShortStatement = 4096
)

// copyRows copies the LOCK TABLES statement of one table and, if the table has FLOAT columns, the statements for its
// rows. Each INSERT is then replaced with an INSERT of as many rows, so mysqldump and this session read about the same
// row at the same time.
func (f *floatRows) copyRows(ctx context.Context, to io.Writer, from *bufio.Reader, schema string) error {
	lock, err := readStatement(from, maxShortStatement)
	if err != nil {
		return err
	}
	name, hasHead := strings.CutPrefix(lock.text, lockHead)
	name, hasTail := strings.CutSuffix(name, lockTail)
	if !hasHead || !hasTail {
		return errors.New("expected LOCK TABLES before the rows of a table, found another statement of mysqldump")
	}
	if _, err := io.WriteString(to, lock.text); err != nil {
		return fmt.Errorf("copy the dump: %w", err)
	}
	name = mysqlshdump.UnquoteName(name)
	i := slices.IndexFunc(f.missing, func(t floatTable) bool { return t.schema == schema && t.name == name })
	if i < 0 {
		return nil
	}
	table := f.missing[i]
	f.missing = slices.Delete(f.missing, i, i+1)
	keys, err := readStatement(from, maxShortStatement)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(to, keys.text); err != nil {
		return fmt.Errorf("copy the dump: %w", err)
	}
	if err := f.replaceRows(ctx, to, from, table); err != nil {
		return fmt.Errorf("dump the rows of %s: %w", table.quotedName(), err)
	}
	return f.releaseTables(ctx)
}

func (f *floatRows) replaceRows(ctx context.Context, to io.Writer, from *bufio.Reader, table floatTable) error {
	now, err := f.listNow(ctx, table)
	if err != nil {
		return err
	}
	if len(now) != 1 || !now[0].isEqual(table) {
		return errors.New("expected the columns to stay the same while the dump is made, found changes; the next attempt includes them")
	}
	rows, err := f.queryRows(ctx, table, LockTimeout)
	var skipped []int
	if errorNumber(err) == codeLockTimeout {
		// A statement that locks the table waits for mysqldump, and this session waits for that statement. mysqldump
		// releases the table when all of its output for the table was read.
		if skipped, err = skipInserts(from); err != nil {
			return err
		}
		rows, err = f.queryRows(ctx, table, askTimeout)
	}
	if err != nil {
		return fmt.Errorf("the instance %s", describeError(err))
	}
	defer func() { _ = rows.Close() }() // rows.Err returns errors of the query.
	w := newRowWriter(to, table, rows)
	if err := w.writeInserts(skipped, from); err != nil {
		return err
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("the instance %s", describeError(err))
	}
	return w.to.Flush()
}

// queryRows queries the rows. It waits at most the given time for a statement that locks the table.
func (f *floatRows) queryRows(ctx context.Context, table floatTable, wait time.Duration) (*sql.Rows, error) {
	if _, err := f.ExecContext(ctx, fmt.Sprintf("set session lock_wait_timeout = %d", int(wait.Seconds()))); err != nil {
		return nil, err
	}
	return f.QueryContext(ctx, table.query())
}

// skipInserts reads the INSERT statements of a table, and returns the number of rows of each.
func skipInserts(from *bufio.Reader) ([]int, error) {
	var all []int
	for {
		n, err := skipInsert(from)
		if err != nil || n == 0 {
			return all, err
		}
		all = append(all, n)
	}
}

// skipInsert reads an INSERT statement and returns its number of rows. It returns 0 if another statement follows.
func skipInsert(from *bufio.Reader) (int, error) {
	next, err := from.Peek(len(insertKeywords))
	if err != nil || string(next) != insertKeywords {
		return 0, err
	}
	insert, err := readStatement(from, 0)
	return insert.rows, err
}

// dumpedStatement is a statement in the output of mysqldump. Its text begins with the line break before it.
type dumpedStatement struct {
	text string
	// rows is the number of rows of an INSERT.
	rows int
}

// readStatement reads up to the next semicolon outside of quotes. It returns at most kept bytes of the text.
func readStatement(from *bufio.Reader, kept int) (dumpedStatement, error) {
	var s dumpedStatement
	var text []byte
	var quotes quoteScanner
	depth, isValues := 0, false
	for {
		b, err := from.ReadByte()
		if err != nil {
			return s, fmt.Errorf("read a statement of mysqldump: %w", err)
		}
		if len(text) < kept {
			text = append(text, b)
		}
		switch {
		case !quotes.isOutside(b):
		case b == '(':
			if depth++; depth == 1 && isValues {
				s.rows++
			}
		case b == ')':
			depth--
		case b == 'V' && depth == 0: // The first V outside of quotes after the names begins the word VALUES.
			isValues = true
		case b == ';':
			s.text = string(text)
			return s, nil
		}
	}
}

// rowWriter writes INSERT statements.
type rowWriter struct {
	to      *bufio.Writer
	head    string
	columns []dumpedColumn
	rows    *sql.Rows
	values  []sql.RawBytes
	into    []any
	isAtEnd bool
}

func newRowWriter(to io.Writer, t floatTable, rows *sql.Rows) *rowWriter {
	w := &rowWriter{to: bufio.NewWriter(to), head: t.insertHead(), columns: t.columns, rows: rows}
	w.values, w.into = make([]sql.RawBytes, len(t.columns)), make([]any, len(t.columns))
	for i := range w.values {
		w.into[i] = &w.values[i]
	}
	return w
}

// writeInserts writes all rows. For each INSERT that was skipped, and for each INSERT that follows, it writes a
// statement with the same number of rows.
func (w *rowWriter) writeInserts(skipped []int, from *bufio.Reader) error {
	for _, n := range skipped {
		if err := w.writeInsert(n); err != nil {
			return err
		}
	}
	for {
		n, err := skipInsert(from)
		if err != nil {
			return fmt.Errorf("read the output of mysqldump: %w", err)
		}
		if n == 0 {
			break
		}
		if err := w.writeInsert(n); err != nil {
			return err
		}
	}
	for !w.isAtEnd { // A table that is not transactional may have more rows than mysqldump found.
		if err := w.writeInsert(1); err != nil {
			return err
		}
	}
	return nil
}

// writeInsert writes a statement with at most the given number of rows, or nothing if no row is left.
func (w *rowWriter) writeInsert(most int) error {
	begin := w.head
	for range most {
		if w.isAtEnd = w.isAtEnd || !w.rows.Next(); w.isAtEnd {
			break
		}
		if err := w.rows.Scan(w.into...); err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
		_, _ = w.to.WriteString(begin + "(") // A bufio.Writer returns its first error again.
		for i, c := range w.columns {
			if i > 0 {
				_ = w.to.WriteByte(',')
			}
			if err := w.writeValue(c.kind, w.values[i]); err != nil {
				return err
			}
		}
		_ = w.to.WriteByte(')')
		begin = ","
	}
	if begin == w.head {
		return nil
	}
	return w.to.WriteByte(';')
}

// floatDigits is the number of significant digits that identify each FLOAT.
const floatDigits = 9

func (w *rowWriter) writeValue(kind valueKind, value sql.RawBytes) error {
	var err error
	switch {
	case value == nil:
		_, err = w.to.WriteString("NULL")
	case string(value) == "-0" && kind != textValue && kind != bytesValue:
		_, err = w.to.WriteString("-0e0") // Without an exponent it would be an integer, which has no negative zero.
	case kind == floatValue:
		number, parseErr := strconv.ParseFloat(string(value), 64)
		if parseErr != nil {
			return fmt.Errorf("read a FLOAT: %w", parseErr)
		}
		_, err = w.to.Write(strconv.AppendFloat(w.to.AvailableBuffer(), number, 'g', floatDigits, 64))
	case kind == scaledValue || kind == numberValue:
		_, err = w.to.Write(value)
	case kind == bytesValue && len(value) > 0:
		_, _ = w.to.WriteString("0x") // A bufio.Writer returns its first error again.
		_, err = hex.NewEncoder(w.to).Write(value)
	default:
		err = writeQuoted(w.to, value)
	}
	return err
}

// writeQuoted writes a text as mysqldump does.
func writeQuoted(to *bufio.Writer, text []byte) error {
	const special, letters = "\x00\n\r\\'\"\x1a", "0nr\\'\"Z"
	_ = to.WriteByte('\'') // A bufio.Writer returns its first error again.
	for {
		i := bytes.IndexAny(text, special)
		if i < 0 {
			break
		}
		_, _ = to.Write(text[:i])
		_ = to.WriteByte('\\')
		_ = to.WriteByte(letters[strings.IndexByte(special, text[i])])
		text = text[i+1:]
	}
	_, _ = to.Write(text)
	return to.WriteByte('\'')
}
