// SPDX-License-Identifier: Apache-2.0

package binlog

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Statement is the content of a QueryEvent.
type Statement struct {
	// Default is the default schema of the session; empty if it had none.
	Default string
	// Text is the statement.
	Text string
	// Updated lists the schemas that the statement writes to. Servers record it for parallel replication, but not
	// for every kind of statement:
	// https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Query__event.html
	Updated []string
	// HasUnlistedSchemas is true if the statement may write to schemas that the server does not list.
	HasUnlistedSchemas bool
}

// updatedSchemas is the code of the status variable that lists the written schemas, and unlistedSchemas its count if
// they are more than a server records.
const (
	updatedSchemas  = 12
	unlistedSchemas = 254
)

// ParseStatement reads a QueryEvent.
func (e BinlogEvent) ParseStatement(checksummed bool) Statement {
	body := fieldReader{left: e.Raw[headerSize:]}
	body.take(8) // These are the session and the duration of the statement.
	schema := body.fixed(1)
	body.take(2) // This is the error code.
	variables := body.sub(body.fixed(2))
	var s Statement
	s.readVariables(&variables)
	s.Default = string(body.sub(schema).left)
	body.take(1)
	s.Text = string(trimChecksum(body.left, checksummed))
	s.HasUnlistedSchemas = s.HasUnlistedSchemas || variables.short || body.short
	return s
}

const (
	// queryHeadSize is the size of the fields before the length of the status variables.
	queryHeadSize = 8 + 1 + 2
	// noBackslashEscapes is the bit of an SQL mode in which a backslash is an ordinary character.
	noBackslashEscapes = 1 << 20
	// noForeignKeyChecks is the bit of foreign_key_checks = 0 in the flags of a statement.
	noForeignKeyChecks = 1 << 26
	// maxBegin is greater than any event that begins a transaction.
	maxBegin = 1 << 14
)

// withBackslashEscapes removes NO_BACKSLASH_ESCAPES from the SQL mode of a statement that begins a transaction. Row
// events are applied in this mode. In it, a server cannot open a table whose definition has an expression with a quote,
// because it stores the quote with a backslash. The source may have had the table open. Values of rows do not depend on
// this mode.
func (e BinlogEvent) withBackslashEscapes(checksummed bool) BinlogEvent {
	if len(e.Raw) > maxBegin {
		return e
	}
	if verb, _ := parseTransactionControl(e.QueryText(checksummed)); verb != "BEGIN" && verb != "XA START" {
		return e
	}
	raw := bytes.Clone(trimChecksum(e.Raw, checksummed))
	body := fieldReader{left: raw[headerSize:]}
	body.take(queryHeadSize)
	variables := body.sub(body.fixed(2))
	if variables.fixed(1) == 0 { // These are flags, which precede the SQL mode.
		variables.take(4)
		if variables.fixed(1) == 1 {
			mode := variables.take(8)
			binary.LittleEndian.PutUint64(mode, binary.LittleEndian.Uint64(mode)&^noBackslashEscapes)
		}
	}
	return newEvent(raw, checksummed)
}

// withoutForeignKeys turns foreign_key_checks off for a statement that changes a definition. A foreign key may refer to a
// schema that does not exist. Statements that change rows keep the setting, since without it nothing cascades.
func (e BinlogEvent) withoutForeignKeys(checksummed bool) BinlogEvent {
	l := lexer{left: e.QueryText(checksummed)}
	if !slices.Contains([]string{"ALTER", "CREATE", "DROP", "RENAME", "TRUNCATE"}, l.nextWord()) {
		return e
	}
	raw := bytes.Clone(trimChecksum(e.Raw, checksummed))
	body := fieldReader{left: raw[headerSize:]}
	body.take(queryHeadSize)
	variables := body.sub(body.fixed(2))
	if variables.fixed(1) != 0 { // These are not the flags, which come first.
		return e
	}
	flags := variables.take(4)
	binary.LittleEndian.PutUint32(flags, binary.LittleEndian.Uint32(flags)|noForeignKeyChecks)
	return newEvent(raw, checksummed)
}

// readVariables reads the status variables until the list of schemas. Variables with higher codes follow it, and
// newer servers may have some that are unknown here.
func (s *Statement) readVariables(r *fieldReader) {
	for len(r.left) > 0 {
		switch code := r.fixed(1); code {
		case updatedSchemas:
			s.readUpdated(r)
			return
		case 7, 8: // These are the locale and the character set of the default schema.
			r.take(2)
		case 0, 3, 10: // Flags, increments and a size.
			r.take(4)
		case 4: // These are the character sets.
			r.take(6)
		case 1, 9: // These are the SQL mode and a map of tables.
			r.take(8)
		case 5, 6: // These are the time zone and the catalog.
			r.take(r.fixed(1))
		case 11: // These are the name and the host of the definer.
			r.take(r.fixed(1))
			r.take(r.fixed(1))
		default:
			s.HasUnlistedSchemas = code < updatedSchemas
			return
		}
	}
}

func (s *Statement) readUpdated(r *fieldReader) {
	count := r.fixed(1)
	s.HasUnlistedSchemas = count == unlistedSchemas
	if s.HasUnlistedSchemas {
		return
	}
	for range count {
		end := slices.Index(r.left, 0)
		if end < 0 {
			s.HasUnlistedSchemas = true
			return
		}
		s.Updated = append(s.Updated, string(r.take(int64(end))))
		r.take(1)
	}
}
