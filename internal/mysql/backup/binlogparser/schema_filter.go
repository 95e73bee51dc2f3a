// SPDX-License-Identifier: Apache-2.0

package binlogparser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
)

// These are the types of events in a transaction that a SchemaFilter handles.
const (
	intvarEvent       = 5
	randEvent         = 13
	userVariableEvent = 14
	commitEvent       = 16
	tableMapEvent     = 19
	firstRowsEvent    = 23 // The first version of row events. The types are consecutive.
	lastRowsEvent     = 25
	rowsQueryEvent    = 29
	firstNewRowsEvent = 30
	lastNewRowsEvent  = 32
	preparedEvent     = 38
	partialRowsEvent  = 39
	payloadEvent      = 40
)

const (
	tableIDSize = 6
	// endsStatement is the flag of the last row event of a statement.
	endsStatement = 1
	// ignoresForeignKeys is the flag of rows that are applied without foreign key checks.
	ignoresForeignKeys = 1 << 1
	// recordsCascades is the flag of rows from a server that logs the rows that foreign keys change.
	recordsCascades = 1 << 4
	// isReferencedElsewhere is the flag of a table to which a foreign key refers, possibly from another schema.
	isReferencedElsewhere = 1 << 1
)

// SchemaFilter copies the part of each transaction that changes one schema. It selects events by the schemas that they
// change, and not by the session's default schema as mysqlbinlog --database does:
// https://bugs.mysql.com/bug.php?id=54896
type SchemaFilter struct {
	// Schema is the only schema whose changes are copied.
	Schema string
	// Keep, if set, reports whether to copy a statement that changes the schema or does not belong to a schema.
	Keep func(statement string) bool
	// Defaults collects the default schemas of copied statements, except Schema.
	Defaults map[string]bool

	to          io.Writer
	checksummed bool
	begun       [][]byte
	tables      map[int64]tableRole
	lastRows    []byte
	hasCopied   bool
	// branch is the name of the XA transaction that is being read. prepared records which prepared XA transactions were
	// copied.
	branch   string
	prepared map[string]bool
	// isCascadeUnclear is true if the current statement has updated or deleted rows of another schema's table to which
	// foreign keys refer. The server may have changed rows of Schema without logging them.
	isCascadeUnclear bool
}

// tableRole defines whether the rows of a table are copied.
type tableRole int

const (
	copiedTable tableRole = iota + 1
	otherTable
	otherReferencedTable
)

// InseparableError reports a transaction whose changes to one schema cannot be separated from its other changes.
type InseparableError struct{ reason string }

func (e *InseparableError) Error() string { return e.reason }

func inseparable(format string, args ...any) error {
	return &InseparableError{fmt.Sprintf(format, args...)}
}

// CopyTransaction reads the transaction that begins with first and continues in rest, and writes the part that changes
// the schema. It writes nothing if there is no such part. It returns an *InseparableError if the part cannot be
// separated.
func (f *SchemaFilter) CopyTransaction(first BinlogEvent, rest io.Reader, to io.Writer, checksummed bool) error {
	f.to, f.checksummed, f.begun, f.hasCopied, f.lastRows = to, checksummed, [][]byte{first.Raw}, false, nil
	f.tables, f.branch, f.isCascadeUnclear = map[int64]tableRole{}, "", false
	err := eachEvent(rest, checksummed, func(e BinlogEvent, has bool) error { return f.copyEvent(e.withChecksum(has, checksummed)) })
	if err != nil {
		return err
	}
	return f.endStatement()
}

func (f *SchemaFilter) copyEvent(e BinlogEvent) error {
	switch t := e.EventType(); {
	case t == QueryEvent:
		return f.copyStatement(e, e.ParseStatement(f.checksummed))
	case isContext(t):
		f.begun = append(f.begun, e.Raw) // The variables belong to the next statement.
		return nil
	case t == tableMapEvent:
		return f.copyTable(e)
	case isRows(t):
		return f.copyRows(e)
	case t == rowsQueryEvent: // The event contains only the text of the statement, as a comment.
		return nil
	case t == commitEvent || t == preparedEvent:
		return f.endTransaction(e)
	default:
		return inseparable("an event of type %d", t)
	}
}

func (f *SchemaFilter) endTransaction(e BinlogEvent) error {
	if err := f.endStatement(); err != nil {
		return err
	}
	if e.EventType() == preparedEvent && f.branch != "" {
		if f.prepared == nil {
			f.prepared = map[string]bool{}
		}
		f.prepared[f.branch] = f.hasCopied
	}
	if !f.hasCopied {
		return nil
	}
	return f.write(e.Raw)
}

// write writes the delayed events in begun, followed by the given event.
func (f *SchemaFilter) write(raw []byte) error {
	for _, held := range append(f.begun, raw) {
		if _, err := f.to.Write(held); err != nil {
			return err
		}
	}
	f.begun, f.hasCopied = nil, true
	return nil
}

func (f *SchemaFilter) copyStatement(e BinlogEvent, s Statement) error {
	if err := f.endStatement(); err != nil {
		return err
	}
	if verb, branch := parseTransactionControl(s.Text); verb != "" {
		return f.copyControl(e, verb, branch)
	}
	changes, err := f.isChange(s)
	if err != nil {
		return err
	}
	if !changes || f.Keep != nil && !f.Keep(s.Text) {
		f.begun = slices.DeleteFunc(f.begun, func(raw []byte) bool { return isContext(raw[4]) })
		return nil
	}
	if s.Default != "" && s.Default != f.Schema && f.Defaults != nil {
		f.Defaults[s.Default] = true
	}
	return f.write(e.withoutForeignKeys(f.checksummed).Raw)
}

// copyControl copies a statement that begins, ends or marks a transaction, if a part of the transaction is copied.
func (f *SchemaFilter) copyControl(e BinlogEvent, verb, branch string) error {
	switch verb {
	case "XA START":
		f.branch = branch
	case "XA COMMIT", "XA ROLLBACK":
		isCopied, isKnown := f.prepared[branch]
		if !isKnown {
			return inseparable("the end of an XA transaction that was prepared before the backup")
		}
		delete(f.prepared, branch)
		if isCopied {
			return f.write(e.Raw)
		}
		return nil
	}
	if f.hasCopied {
		return f.write(e.Raw)
	}
	f.begun = append(f.begun, e.Raw)
	return nil
}

// isContext reports whether events of a type contain values for the next statement.
func isContext(t byte) bool { return t == intvarEvent || t == randEvent || t == userVariableEvent }

// isChange reports whether a statement changes the schema, or an object that is not in a schema.
func (f *SchemaFilter) isChange(s Statement) (bool, error) {
	if isMaintenance(s.Text) {
		return false, nil
	}
	if s.HasUnlistedSchemas {
		return false, inseparable("%s that changes more schemas than the binary log lists", describeStatement(s.Text))
	}
	touched := slices.DeleteFunc(slices.Clone(s.Updated), func(name string) bool { return name == "mysql" })
	if len(s.Updated) == 0 {
		var err error
		if touched, err = parseTouchedSchemas(s); err != nil {
			return false, err
		}
	}
	others := slices.DeleteFunc(slices.Clone(touched), func(name string) bool { return name == f.Schema })
	switch {
	case len(others) == 0:
		return true, nil // The statement changes only the schema, or objects outside of schemas such as accounts.
	case len(others) == len(touched):
		return false, nil
	default:
		return false, inseparable("%s that changes the schemas %s", describeStatement(s.Text), strings.Join(touched, " and "))
	}
}

func (f *SchemaFilter) copyTable(e BinlogEvent) error {
	body := fieldReader{left: e.Raw[headerSize:]}
	id, flags := body.fixed(tableIDSize), body.fixed(2)
	schema := string(body.sub(body.fixed(1)).left)
	switch {
	case body.short:
		return errors.New("expected the description of a table in the binary log, found a shorter event")
	case schema == f.Schema:
		f.tables[id] = copiedTable
		return f.write(e.Raw)
	case flags&isReferencedElsewhere != 0:
		f.tables[id] = otherReferencedTable
	default:
		f.tables[id] = otherTable
	}
	return nil
}

// copyRows delays each row event until the next one is copied. The last copied event must have the flag endsStatement.
func (f *SchemaFilter) copyRows(e BinlogEvent) error {
	body := fieldReader{left: e.Raw[headerSize:]}
	id, flags := body.fixed(tableIDSize), body.fixed(2)
	role := f.tables[id]
	isInsert := e.EventType() == firstRowsEvent || e.EventType() == firstNewRowsEvent
	switch {
	case body.short || role == 0 && flags&endsStatement == 0:
		return errors.New("expected rows of a table that the binary log has described, found rows of another table")
	case role == copiedTable:
		if err := f.flushRows(); err != nil {
			return err
		}
		f.lastRows = e.Raw
		if isInsert || flags&recordsCascades != 0 {
			// The parent rows may be in another schema. The flag also disables cascades.
			f.lastRows = e.withRowsFlag(ignoresForeignKeys, f.checksummed).Raw
		}
	case role == otherReferencedTable && !isInsert && flags&recordsCascades == 0:
		f.isCascadeUnclear = true
	}
	if flags&endsStatement != 0 {
		return f.endStatement()
	}
	return nil
}

func (f *SchemaFilter) flushRows() error {
	if f.lastRows == nil {
		return nil
	}
	raw := f.lastRows
	f.lastRows = nil
	return f.write(raw)
}

// endStatement writes the last row event of a statement.
func (f *SchemaFilter) endStatement() error {
	isUnclear := f.isCascadeUnclear
	for _, role := range f.tables {
		// Servers that log cascades also describe the table that a cascade changes.
		isUnclear = isUnclear && role != copiedTable
	}
	f.tables, f.isCascadeUnclear = map[int64]tableRole{}, false
	if isUnclear {
		return inseparable("changed rows of a table that a foreign key refers to, by a server that does not record cascades")
	}
	if f.lastRows != nil && !hasRowsFlag(f.lastRows, endsStatement) {
		f.lastRows = BinlogEvent{f.lastRows}.withRowsFlag(endsStatement, f.checksummed).Raw
	}
	return f.flushRows()
}

const rowsFlagsAt = headerSize + tableIDSize

func hasRowsFlag(raw []byte, flag byte) bool { return raw[rowsFlagsAt]&flag != 0 }

func (e BinlogEvent) withRowsFlag(flag byte, checksummed bool) BinlogEvent {
	raw := slices.Clone(trimChecksum(e.Raw, checksummed))
	raw[rowsFlagsAt] |= flag
	return newEvent(raw, checksummed)
}

// newEvent returns an event with the given bytes, and with a checksum if checksummed is set.
func newEvent(raw []byte, checksummed bool) BinlogEvent {
	if checksummed {
		raw = binary.LittleEndian.AppendUint32(raw, crc32.ChecksumIEEE(raw))
	}
	return BinlogEvent{raw}
}

// withChecksum adds the checksum that events in a compressed transaction lack.
func (e BinlogEvent) withChecksum(has, wants bool) BinlogEvent {
	if has || !wants {
		return e
	}
	raw := slices.Clone(e.Raw)
	binary.LittleEndian.PutUint32(raw[9:], binary.LittleEndian.Uint32(raw[9:])+checksumSize)
	return BinlogEvent{binary.LittleEndian.AppendUint32(raw, crc32.ChecksumIEEE(raw))}
}
