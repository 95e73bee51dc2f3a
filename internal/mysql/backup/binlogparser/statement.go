// SPDX-License-Identifier: Apache-2.0

package binlogparser

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Statement is the content of a QueryEvent.
type Statement struct {
	// Default is the session's default schema. It is empty if the session had none.
	Default string
	// Text is the statement.
	Text string
	// Updated lists the schemas to which the statement writes. Servers log them for parallel replication, but not for
	// every kind of statement:
	// https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Query__event.html
	Updated []string
	// HasUnlistedSchemas is true if the statement may write to schemas that the server does not list.
	HasUnlistedSchemas bool
}

// updatedSchemas is the code of the status variable that lists the updated schemas. unlistedSchemas is the count in the
// list if there are more schemas than a server logs.
const (
	updatedSchemas  = 12
	unlistedSchemas = 254
)

// ParseStatement parses a QueryEvent.
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

// errorCode returns the number of the error with which the statement of a QueryEvent ended on the source, after it had
// changed a table without transactions. It is 0 for a statement that succeeded.
func (e BinlogEvent) errorCode() int {
	body := fieldReader{left: e.Raw[headerSize:]}
	body.take(8 + 1) // These are the session, the duration and the size of the default schema.
	return int(body.fixed(2))
}

const (
	// queryHeadSize is the size of the fields in front of the length of the status variables.
	queryHeadSize = 8 + 1 + 2
	// noBackslashEscapes is the bit for NO_BACKSLASH_ESCAPES in an SQL mode. In this mode a backslash is an ordinary
	// character.
	noBackslashEscapes = 1 << 20
	// noForeignKeyChecks is the bit for foreign_key_checks = 0 in the flags of a statement.
	noForeignKeyChecks = 1 << 26
	// maxBegin is larger than any event that begins a transaction.
	maxBegin = 1 << 14
)

// withBackslashEscapes removes NO_BACKSLASH_ESCAPES from the SQL mode of a statement that begins a transaction. Row
// events are applied in the SQL mode of that statement. With NO_BACKSLASH_ESCAPES, a server cannot open a table whose
// definition contains an expression with a quote, because the quote is stored with a backslash. On the source the table
// may already have been open. Row values do not depend on the SQL mode.
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
	if variables.fixed(1) == 0 { // These are the flags, which precede the SQL mode.
		variables.take(4)
		if variables.fixed(1) == 1 {
			mode := variables.take(8)
			binary.LittleEndian.PutUint64(mode, binary.LittleEndian.Uint64(mode)&^noBackslashEscapes)
		}
	}
	return newEvent(raw, checksummed)
}

// withoutForeignKeys turns foreign_key_checks off for a statement that changes a definition, because a foreign key may
// refer to a schema that does not exist. Statements that change rows keep the setting, because nothing would cascade
// without it.
func (e BinlogEvent) withoutForeignKeys(checksummed bool) BinlogEvent {
	l := lexer{left: e.QueryText(checksummed)}
	if !slices.Contains([]string{"ALTER", "CREATE", "DROP", "RENAME", "TRUNCATE"}, l.nextWord()) {
		return e
	}
	raw := bytes.Clone(trimChecksum(e.Raw, checksummed))
	body := fieldReader{left: raw[headerSize:]}
	body.take(queryHeadSize)
	variables := body.sub(body.fixed(2))
	// If a statement has flags, they are its first variable. This variable is a different one.
	if variables.fixed(1) != 0 {
		return e
	}
	flags := variables.take(4)
	binary.LittleEndian.PutUint32(flags, binary.LittleEndian.Uint32(flags)|noForeignKeyChecks)
	return newEvent(raw, checksummed)
}

// readVariables reads the status variables up to the list of schemas. Variables with higher codes follow the list.
// Newer servers may write variables that are not supported here.
func (s *Statement) readVariables(r *fieldReader) {
	for len(r.left) > 0 {
		switch code := r.fixed(1); code {
		case updatedSchemas:
			s.readUpdated(r)
			return
		case 7, 8: // These are the locale and the character set of the default schema.
			r.take(2)
		case 0, 3, 10: // These are flags, increments and a size.
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
