// SPDX-License-Identifier: Apache-2.0

package binlogparser_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/torpor-dev/torpor/internal/mysql/backup/binlogparser"
)

// query builds a QueryEvent. The updated schemas, if any, are listed in the format of a server.
func query(defaultSchema, text string, updated ...string) []byte {
	variables := "\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x06\x03std\x05\x06SYSTEM"
	if len(updated) > 0 {
		variables += "\x0c" + string([]byte{byte(len(updated))})
		for _, name := range updated {
			variables += name + "\x00"
		}
	}
	variables += "\x15\x01" // A variable of an unknown kind, after the list.
	body := "12345678" + string([]byte{byte(len(defaultSchema))}) + "\x00\x00"
	body += string(binary.LittleEndian.AppendUint16(nil, uint16(len(variables)))) + variables + defaultSchema + "\x00" + text
	return event(binlogparser.QueryEvent, body)
}

func tableID(id byte) string { return string([]byte{id, 0, 0, 0, 0, 0}) }

func tableMap(id byte, schema string, flags byte) []byte {
	return event(19, tableID(id)+string([]byte{flags, 0, byte(len(schema))})+schema+"\x00\x01t\x00")
}

func rows(kind, id, flags byte) []byte {
	return event(kind, tableID(id)+string([]byte{flags, 0})+"\x02\x00row")
}

const (
	insertRows, updateRows, deleteRows = 30, 31, 32
	isReferenced                       = 2
	unchecked, recordsCascades         = 2, 16
)

// withoutForeignKeys returns a statement with foreign_key_checks = OFF.
func withoutForeignKeys(raw []byte) []byte {
	const lastOfFlags = 19 + 13 + 4
	raw = bytes.Clone(raw)
	raw[lastOfFlags] |= 4
	return raw
}

var (
	head   = event(33, "head")
	begin  = query("two", "BEGIN")
	commit = event(16, "12345678")
)

// compress builds an event that contains a compressed transaction.
func compress(t testing.TB, events ...[]byte) []byte {
	t.Helper()
	writer, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	payload := writer.EncodeAll(slices.Concat(events...), nil)
	return event(40, "\x02\x01\x00\x00"+string(payload))
}

func TestCopyTransaction(t *testing.T) {
	for name, tt := range map[string]struct {
		in, want []byte
		err      string
	}{
		"rows of the restored schema: copied": {
			in:   slices.Concat(begin, tableMap(1, "two", 0), rows(insertRows, 1, 1), commit),
			want: slices.Concat(head, begin, tableMap(1, "two", 0), rows(insertRows, 1, unchecked|1), commit),
		},
		"rows of another schema: omitted": {in: slices.Concat(begin, tableMap(1, "one", 0), rows(insertRows, 1, 1), commit)},
		"rows of both schemas by one statement: the last copied event ends the statement": {
			in:   slices.Concat(begin, tableMap(1, "two", 0), tableMap(2, "one", 0), rows(updateRows, 1, 0), rows(updateRows, 2, 1), commit),
			want: slices.Concat(head, begin, tableMap(1, "two", 0), rows(updateRows, 1, 1), commit),
		},
		"rows of both schemas by two statements: those of the restored schema are copied": {
			in:   slices.Concat(begin, tableMap(1, "one", 0), rows(insertRows, 1, 1), event(29, "\x05query"), tableMap(2, "two", 0), rows(insertRows, 2, 0), rows(insertRows, 2, 1), commit),
			want: slices.Concat(head, begin, tableMap(2, "two", 0), rows(insertRows, 2, unchecked), rows(insertRows, 2, unchecked|1), commit),
		},
		"deleted rows of a referenced table in another schema, without recorded cascades: refused": {
			in: slices.Concat(begin, tableMap(1, "one", isReferenced), rows(deleteRows, 1, 1), commit), err: "does not record cascades",
		},
		"deleted rows of a referenced table in another schema, with recorded cascades: omitted": {
			in: slices.Concat(begin, tableMap(1, "one", isReferenced), rows(deleteRows, 1, recordsCascades|1), commit),
		},
		"inserted rows of a referenced table in another schema: omitted": {in: slices.Concat(begin, tableMap(1, "one", isReferenced), rows(insertRows, 1, 1), commit)},
		"rows of the restored schema that a cascade deleted: copied": {
			in:   slices.Concat(begin, tableMap(1, "one", isReferenced), tableMap(2, "two", 0), rows(deleteRows, 1, 0), rows(deleteRows, 2, 1), commit),
			want: slices.Concat(head, begin, tableMap(2, "two", 0), rows(deleteRows, 2, 1), commit),
		},
		"changed rows with recorded cascades: copied without foreign key checks": {
			in:   slices.Concat(begin, tableMap(1, "two", 0), rows(updateRows, 1, recordsCascades|1), commit),
			want: slices.Concat(head, begin, tableMap(1, "two", 0), rows(updateRows, 1, recordsCascades|unchecked|1), commit),
		},
		"changed rows without recorded cascades: copied with foreign key checks": {
			in:   slices.Concat(begin, tableMap(1, "two", 0), rows(deleteRows, 1, 1), commit),
			want: slices.Concat(head, begin, tableMap(1, "two", 0), rows(deleteRows, 1, 1), commit),
		},
		"INSERT as a statement: copied with foreign key checks": {
			in:   query("", "insert into two.t values (1)", "two"),
			want: slices.Concat(head, query("", "insert into two.t values (1)", "two")),
		},
		"rows of a table without a table map: refused": {in: slices.Concat(begin, rows(insertRows, 9, 0), commit), err: "rows of a table that the binary log has described"},
		"compressed transaction: the schema's part is copied uncompressed": {
			in:   compress(t, begin, tableMap(1, "one", 0), rows(insertRows, 1, 1), tableMap(2, "two", 0), rows(insertRows, 2, 1), commit),
			want: slices.Concat(head, begin, tableMap(2, "two", 0), rows(insertRows, 2, unchecked|1), commit),
		},
		"unknown compression: refused": {in: event(40, "\x02\x01\x07\x00"), err: "the compression 7"},
		"unknown event: refused":       {in: event(99, ""), err: "an event of type 99"},
		"end in the middle of an event: refused": {
			in: slices.Concat(begin, commit[:10]), err: "unexpected EOF",
		},
		"statement for the restored schema with another default schema: copied":         {in: query("one", "alter table two.t add c int", "two"), want: slices.Concat(head, withoutForeignKeys(query("one", "alter table two.t add c int", "two")))},
		"statement for another schema with the restored schema as the default: omitted": {in: query("two", "alter table one.t add c int", "one")},
		"statement for both schemas: refused":                                           {in: query("", "RENAME TABLE two.t TO one.t", "two", "one"), err: "a statement RENAME TABLE that changes the schemas two and one"},
		"statement with more schemas than listed: refused":                              {in: event(binlogparser.QueryEvent, "12345678\x00\x00\x00\x02\x00\x0c\xfe\x00drop table a.t"), err: "more schemas than the binary log lists"},
		"TRUNCATE in the restored schema: copied":                                       {in: query("", "truncate `two`.t"), want: slices.Concat(head, withoutForeignKeys(query("", "truncate `two`.t")))},
		"TRUNCATE without a schema, with the restored schema as the default: copied":    {in: query("two", "truncate table t"), want: slices.Concat(head, withoutForeignKeys(query("two", "truncate table t")))},
		"TRUNCATE in another schema: omitted":                                           {in: query("two", "truncate table one.t")},
		"CREATE TABLE LIKE a table of another schema: refused":                          {in: query("", "create table two.t like one.t"), err: "CREATE TABLE that changes the schemas one and two"},
		"CREATE TABLE LIKE in brackets: refused":                                        {in: query("one", "create table if not exists two.t (like t)"), err: "CREATE TABLE that changes the schemas one and two"},
		"CREATE TABLE SELECT as the server records it: copied": {
			in:   slices.Concat(begin, query("", "CREATE TABLE `two`.`c` (\n  `id` int\n) START TRANSACTION"), tableMap(1, "two", 0), rows(insertRows, 1, 1), commit),
			want: slices.Concat(head, begin, withoutForeignKeys(query("", "CREATE TABLE `two`.`c` (\n  `id` int\n) START TRANSACTION")), tableMap(1, "two", 0), rows(insertRows, 1, unchecked|1), commit),
		},
		"GRANT on the restored schema: copied":          {in: query("", "GRANT SELECT ON `two`.* TO 'a'@'%'", "mysql", "two"), want: slices.Concat(head, query("", "GRANT SELECT ON `two`.* TO 'a'@'%'", "mysql", "two"))},
		"GRANT on another schema: omitted":              {in: query("", "GRANT SELECT ON `one`.`t` TO 'a'@'%'", "one", "mysql")},
		"new account: copied":                           {in: query("", "CREATE USER 'a'@'%'", "mysql"), want: slices.Concat(head, withoutForeignKeys(query("", "CREATE USER 'a'@'%'", "mysql")))},
		"statement about an excluded account: omitted":  {in: query("", "DROP USER 'left-out'@'%'", "mysql")},
		"tablespace: copied":                            {in: query("one", "create tablespace s"), want: slices.Concat(head, withoutForeignKeys(query("one", "create tablespace s")))},
		"ANALYZE TABLE in the restored schema: omitted": {in: query("two", "/* x */ analyze table two.t")},
		"unknown statement: refused":                    {in: query("two", "frobnicate table two.t"), err: "a statement FROBNICATE TABLE, which the binary log does not assign to a schema"},
		"end of an unknown XA branch: refused":          {in: query("", "XA COMMIT X'61',X'',1"), err: "prepared before the backup"},
		"variables before a statement for another schema: omitted": {
			in: slices.Concat(begin, event(14, "v"), query("", "insert into one.t values (@v)", "one"), commit),
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := binlogparser.SchemaFilter{Schema: "two", Keep: func(statement string) bool { return !strings.Contains(statement, "left-out") }, Defaults: map[string]bool{}}
			var found bytes.Buffer
			err := f.CopyTransaction(binlogparser.BinlogEvent{Raw: head}, bytes.NewReader(tt.in), &found, false)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("expected %q, found %v", tt.err, err)
				}
				return
			}
			if err != nil || !bytes.Equal(found.Bytes(), tt.want) {
				t.Errorf("expected %q, found %v and %q", tt.want, err, found.Bytes())
			}
		})
	}
}

// TestCopyXATransaction covers an XA transaction whose end follows its prepared part.
func TestCopyXATransaction(t *testing.T) {
	f := binlogparser.SchemaFilter{Schema: "two"}
	prepare := func(schema, branch string) []byte {
		return slices.Concat(query("", "XA START "+branch), tableMap(1, schema, 0), rows(insertRows, 1, unchecked|1), query("", "XA END "+branch), event(38, "p"))
	}
	for _, step := range []struct {
		in       []byte
		isCopied bool
	}{
		{prepare("two", "X'61'"), true}, {prepare("one", "X'62'"), false}, {query("", "XA COMMIT X'62'"), false}, {query("", "XA COMMIT X'61'"), true},
	} {
		var found bytes.Buffer
		err := f.CopyTransaction(binlogparser.BinlogEvent{Raw: head}, bytes.NewReader(step.in), &found, false)
		want := slices.Concat(head, step.in)
		if !step.isCopied {
			want = nil
		}
		if err != nil || !bytes.Equal(found.Bytes(), want) {
			t.Errorf("%q: expected a copy: %v, found %v and %q", step.in, step.isCopied, err, found.Bytes())
		}
	}
}

// FuzzCopyTransaction searches for events that crash the filter, because objects in a bucket may be damaged.
func FuzzCopyTransaction(f *testing.F) {
	f.Add(slices.Concat(begin, tableMap(1, "two", 0), rows(insertRows, 1, 0), tableMap(2, "one", 2), rows(deleteRows, 2, 1), commit))
	f.Add(query("one", "create table `two` (like \"one\".t", "two", "one"))
	f.Add(compress(f, begin, commit))
	f.Fuzz(func(t *testing.T, text []byte) {
		filter := binlogparser.SchemaFilter{Schema: "two", Defaults: map[string]bool{}}
		for _, isChecksummed := range []bool{false, true} {
			var found bytes.Buffer
			err := filter.CopyTransaction(binlogparser.BinlogEvent{Raw: head}, bytes.NewReader(text), &found, isChecksummed)
			var cause *binlogparser.InseparableError
			if errors.As(err, &cause) && cause.Error() == "" {
				t.Error("expected a reason, found none")
			}
		}
	})
}

func TestTransactionsBeginWithBackslashEscapes(t *testing.T) {
	// inMode builds a statement from a session with NO_BACKSLASH_ESCAPES and STRICT_TRANS_TABLES.
	inMode := func(text string, mode byte) []byte {
		raw := query("two", text)
		const modeAt = 19 + 13 + 5 + 1
		raw[modeAt+2] = mode
		return raw
	}
	const both, strict = 0x30, 0x20
	for text, want := range map[string]byte{
		"BEGIN": strict, "XA START X'78',X'',1": strict, "XA END X'78',X'',1": both, "insert into t values ('back\\')": both, "": both,
	} {
		for _, checksummed := range []bool{false, true} {
			raw, wanted := inMode(text, both), inMode(text, want)
			if checksummed {
				for _, e := range []*[]byte{&raw, &wanted} {
					binary.LittleEndian.PutUint32((*e)[9:], uint32(len(*e)+4))
					*e = binary.LittleEndian.AppendUint32(*e, crc32.ChecksumIEEE(*e))
				}
			}
			var found bytes.Buffer
			n, err := (&binlogparser.StatementSplitter{To: &found, Checksummed: checksummed}).Write(raw)
			if err != nil || n != len(raw) || !bytes.Equal(found.Bytes(), wanted) {
				t.Errorf("%s: expected %q, found %q, %d, %v", text, wanted, found.Bytes(), n, err)
			}
		}
	}
	short := event(binlogparser.QueryEvent, "BEGIN")
	var found bytes.Buffer
	if _, err := (&binlogparser.StatementSplitter{To: &found}).Write(short); err != nil || !bytes.Equal(found.Bytes(), short) {
		t.Errorf("expected an event that is too short as it was, found %q, %v", found.Bytes(), err)
	}
}
