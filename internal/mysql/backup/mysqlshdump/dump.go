// SPDX-License-Identifier: Apache-2.0

// Package mysqlshdump reads dumps of MySQL Shell for restores, and writes them as SQL for the mysql client. MOCO's
// backups contain such dumps as tar archives. The package makes no dumps, and does no I/O except with the given reader
// and writer. The format:
// https://dev.mysql.com/doc/mysql-shell/9.7/en/mysql-shell-utilities-dump-instance-schema.html
package mysqlshdump

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

const (
	// archiveFolder is the folder of all files in the archive.
	archiveFolder = "dump/"
	// maxFile limits the size of a file with metadata or definitions. maxKept limits the size of all of them together.
	maxFile = 16 << 20
	maxKept = 64 << 20
	// maxEntries limits the number of files in an archive, because their names are kept in memory.
	maxEntries = 1_000_000
)

// FormatError reports that an archive is not a complete dump in a supported format.
type FormatError struct{ reason string }

func (e *FormatError) Error() string { return e.reason }

func formatErrorf(format string, args ...any) error {
	return &FormatError{fmt.Sprintf(format, args...)}
}

// TableName is the name of a table.
type TableName struct{ Schema, Table string }

// String returns the quoted name.
func (n TableName) String() string { return QuoteName(n.Schema) + "." + QuoteName(n.Table) }

// ObjectName is the name and kind of an object. The kind is table, view, trigger, event, procedure or function.
type ObjectName struct{ Kind, Schema, Name string }

// Dump describes a complete dump. It contains the definitions but not the rows.
type Dump struct {
	// GTIDSet is the set of transactions in the dump. IsInexact is true if the rows may not match GTIDSet.
	GTIDSet   string
	IsInexact bool

	usesUTC bool
	schemas []schema
	users   string
	// chunks maps each file with rows to its table. sizes holds the decompressed sizes of those files in bytes, where
	// known.
	chunks map[string]*table
	sizes  map[string]int64
	// rows holds the number of rows by schema and table, where known.
	rows map[string]map[string]int64
}

type schema struct {
	name string
	// create is the statement that creates the schema. definitions contains it too, followed by the events and
	// routines.
	create, definitions string
	tables              []*table
	views               []view
	objects             []ObjectName
}

type view struct {
	name string
	// standIn creates a table or view with the columns of the view, for other views that depend on it.
	standIn, definition string
}

type table struct {
	TableName

	definition, triggers string
	columns              []column
}

// columnEncoding is the encoding of a column's values.
type columnEncoding string

const (
	plainText   columnEncoding = ""
	base64Text  columnEncoding = "FROM_BASE64"
	hexadecimal columnEncoding = "UNHEX"
)

type column struct {
	name     string
	encoding columnEncoding
}

// Read reads an archive to its end. It returns an error if Write does not support the dump.
func Read(archive io.Reader) (*Dump, error) {
	f, err := readFiles(archive)
	if err != nil {
		return nil, err
	}
	return f.parse()
}

// archiveFiles holds the contents of the files with metadata and definitions, and the names of the other files.
type archiveFiles struct {
	texts map[string]string
	data  map[string]bool
}

func readFiles(archive io.Reader) (archiveFiles, error) {
	f := archiveFiles{texts: map[string]string{}, data: map[string]bool{}}
	kept := 0
	err := eachFile(archive, func(name string, size int64, from io.Reader) error {
		if len(f.texts)+len(f.data) >= maxEntries {
			return formatErrorf("expected at most %d files in the dump, found more", maxEntries)
		}
		if !strings.HasSuffix(name, ".json") && !strings.HasSuffix(name, ".sql") {
			if !strings.HasSuffix(name, ".idx") { // The indexes of files with rows are skipped.
				f.data[name] = true
			}
			return nil
		}
		if kept += int(min(size, maxFile)); size > maxFile || kept > maxKept {
			return formatErrorf("expected definitions of at most %d bytes in one file and %d in all, found more at %q",
				maxFile, maxKept, name)
		}
		text, err := io.ReadAll(from)
		f.texts[name] = string(text)
		return err
	})
	return f, err
}

// eachFile calls visit for each file of an archive. The names do not contain folders.
func eachFile(archive io.Reader, visit func(name string, size int64, from io.Reader) error) error {
	entries := tar.NewReader(archive)
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, tar.ErrHeader) {
			return formatErrorf("expected a tar archive, found other data")
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if entry.Typeflag == tar.TypeDir {
			continue
		}
		name, isInFolder := strings.CutPrefix(strings.TrimPrefix(entry.Name, "./"), archiveFolder)
		if !isInFolder || name == "" || strings.Contains(name, "/") || entry.Typeflag != tar.TypeReg {
			return formatErrorf("expected only files in the folder %s of the archive, found %q", archiveFolder, entry.Name)
		}
		if err := visit(name, entry.Size, entries); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// The JSON files of a dump. Fields that are irrelevant for loading are omitted.
type (
	instanceFile struct {
		Version                  string            `json:"version"`
		Schemas                  []string          `json:"schemas"`
		Basenames                map[string]string `json:"basenames"`
		DefaultCharacterSet      string            `json:"defaultCharacterSet"`
		TZUTC                    bool              `json:"tzUtc"`
		GTIDExecuted             string            `json:"gtidExecuted"`
		GTIDExecutedInconsistent bool              `json:"gtidExecutedInconsistent"`
		Consistent               bool              `json:"consistent"`
		Capabilities             []struct {
			ID string `json:"id"`
		} `json:"capabilities"`
	}
	endFile struct {
		TableRows      map[string]map[string]int64 `json:"tableRows"`
		ChunkFileBytes map[string]int64            `json:"chunkFileBytes"`
	}
	schemaFile struct {
		Tables     []string          `json:"tables"`
		Views      []string          `json:"views"`
		Events     []string          `json:"events"`
		Functions  []string          `json:"functions"`
		Procedures []string          `json:"procedures"`
		Basenames  map[string]string `json:"basenames"`
	}
	tableFile struct {
		Options struct {
			Columns             []string                  `json:"columns"`
			DecodeColumns       map[string]columnEncoding `json:"decodeColumns"`
			DefaultCharacterSet string                    `json:"defaultCharacterSet"`
			FieldsTerminatedBy  string                    `json:"fieldsTerminatedBy"`
			FieldsEnclosedBy    string                    `json:"fieldsEnclosedBy"`
			FieldsEscapedBy     string                    `json:"fieldsEscapedBy"`
			LinesTerminatedBy   string                    `json:"linesTerminatedBy"`
		} `json:"options"`
		Triggers     []string `json:"triggers"`
		IncludesData bool     `json:"includesData"`
		Extension    string   `json:"extension"`
		Chunking     bool     `json:"chunking"`
		// Basenames holds the base name of the files of each partition.
		Basenames map[string]string `json:"basenames"`
	}
)

const (
	instanceName = "@.json"
	endName      = "@.done.json"
	usersName    = "@.users.sql"
	characterSet = "utf8mb4"
	rowsFormat   = "tsv.zst"
)

// parse checks everything that Write needs, so nothing is loaded from a dump that cannot be loaded completely.
func (f archiveFiles) parse() (*Dump, error) {
	var instance instanceFile
	var end endFile
	if err := f.decode(instanceName, &instance); err != nil {
		return nil, err
	}
	if err := instance.validate(); err != nil {
		return nil, err
	}
	if err := f.decode(endName, &end); err != nil { // This file is written last.
		return nil, err
	}
	d := &Dump{
		GTIDSet:   strings.ReplaceAll(instance.GTIDExecuted, "\n", ""),
		IsInexact: instance.GTIDExecutedInconsistent || !instance.Consistent,
		usesUTC:   instance.TZUTC, users: f.texts[usersName],
		chunks: map[string]*table{}, sizes: end.ChunkFileBytes, rows: end.TableRows,
	}
	for _, name := range instance.Schemas {
		s, err := f.parseSchema(d, name, baseName(instance.Basenames, name, name))
		if err != nil {
			return nil, err
		}
		d.schemas = append(d.schemas, s)
	}
	return d, nil
}

// validate rejects unsupported formats. A dump with another minor version may have to be loaded in a different way.
func (i instanceFile) validate() error {
	major, rest, _ := strings.Cut(i.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	switch {
	case major != "1" && major != "2" || minor != "0":
		return formatErrorf("expected a dump in MySQL Shell's format 1.0 or 2.0, found %q", i.Version)
	case i.DefaultCharacterSet != characterSet:
		return formatErrorf("expected a dump in the character set %s, found %q", characterSet, i.DefaultCharacterSet)
	}
	if _, err := gtid.Parse(i.GTIDExecuted); err != nil {
		return formatErrorf("%s: %v", instanceName, err)
	}
	for _, c := range i.Capabilities {
		if c.ID != "partition_awareness" {
			return formatErrorf("expected a dump without unknown capabilities, found %q", c.ID)
		}
	}
	return nil
}

func (f archiveFiles) decode(name string, into any) error {
	text, isThere := f.texts[name]
	if !isThere {
		return formatErrorf("expected the file %s in the dump, found no such file; the dump is not complete", name)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return formatErrorf("%s: expected JSON of MySQL Shell: %v", name, err)
	}
	return nil
}

func (f archiveFiles) text(name string) (string, error) {
	text, isThere := f.texts[name]
	if !isThere {
		return "", formatErrorf("expected the file %s in the dump, found no such file; the dump is not complete", name)
	}
	return text, nil
}

func baseName(names map[string]string, name, otherwise string) string {
	if base, isThere := names[name]; isThere {
		return base
	}
	return otherwise
}

func (f archiveFiles) parseSchema(d *Dump, name, base string) (schema, error) {
	s := schema{name: name}
	var file schemaFile
	if err := f.decode(base+".json", &file); err != nil {
		return s, err
	}
	var err error
	if s.definitions, err = f.text(base + ".sql"); err != nil {
		return s, err
	}
	if s.create, err = findCreateStatement(s.definitions); err != nil {
		return s, fmt.Errorf("%s.sql: %w", base, err)
	}
	for _, list := range []struct {
		kind  string
		names []string
	}{
		{"table", file.Tables},
		{"view", file.Views},
		{"event", file.Events},
		{"function", file.Functions},
		{"procedure", file.Procedures},
	} {
		for _, object := range list.names {
			s.objects = append(s.objects, ObjectName{list.kind, name, objectName(list.kind, object)})
		}
	}
	for _, table := range file.Tables {
		if err := f.parseTable(d, &s, table, baseName(file.Basenames, table, base+"@"+table)); err != nil {
			return s, err
		}
	}
	for _, name := range file.Views {
		v, base := view{name: name}, baseName(file.Basenames, name, base+"@"+name)
		if v.standIn, err = f.text(base + ".pre.sql"); err != nil {
			return s, err
		}
		if v.definition, err = f.text(base + ".sql"); err != nil {
			return s, err
		}
		s.views = append(s.views, v)
	}
	return s, nil
}

// objectName returns the unquoted name. MySQL Shell 8.0.21 wrote names of events and routines in quotes if necessary.
func objectName(kind, name string) string {
	isQuoted := len(name) > 2 && strings.HasPrefix(name, "`") && strings.HasSuffix(name, "`")
	if kind == "table" || kind == "view" || !isQuoted {
		return name
	}
	return UnquoteName(name[1 : len(name)-1])
}

// findCreateStatement returns the statement that creates the schema. MySQL Shell writes it before the other
// definitions.
func findCreateStatement(definitions string) (string, error) {
	const begin, end = "\nCREATE DATABASE ", ";\n"
	_, rest, isThere := strings.Cut(definitions, begin)
	statement, _, isWhole := strings.Cut(rest, end)
	if !isThere || !isWhole {
		return "", formatErrorf("expected the statement CREATE DATABASE, found none")
	}
	return begin + statement + end, nil
}

func (f archiveFiles) parseTable(d *Dump, s *schema, name, base string) error {
	t := &table{TableName: TableName{s.name, name}}
	var file tableFile
	var err error
	if t.definition, err = f.text(base + ".sql"); err != nil {
		return err
	}
	if err = f.decode(base+".json", &file); err != nil {
		return err
	}
	if len(file.Triggers) > 0 {
		if t.triggers, err = f.text(base + ".triggers.sql"); err != nil {
			return err
		}
	}
	for _, trigger := range file.Triggers {
		s.objects = append(s.objects, ObjectName{"trigger", s.name, trigger})
	}
	s.tables = append(s.tables, t)
	if !file.IncludesData {
		return nil
	}
	if err := t.parseColumns(file); err != nil {
		return fmt.Errorf("%s.json: %w", base, err)
	}
	bases := []string{base}
	if len(file.Basenames) > 0 {
		bases = nil
		for _, partition := range file.Basenames {
			bases = append(bases, partition)
		}
	}
	for _, base := range bases {
		if err := f.addChunks(d, t, base, file); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) parseColumns(file tableFile) error {
	o := file.Options
	isOwnDialect := o.FieldsTerminatedBy == "\t" && o.FieldsEnclosedBy == "" && o.FieldsEscapedBy == `\` && o.LinesTerminatedBy == "\n"
	if !isOwnDialect || o.DefaultCharacterSet != characterSet || file.Extension != rowsFormat {
		return formatErrorf("expected rows in MySQL Shell's default format, compressed with zstd, found another format")
	}
	if len(o.Columns) == 0 {
		return formatErrorf("expected the columns of the table, found none")
	}
	for _, name := range o.Columns {
		encoding := o.DecodeColumns[name]
		if !slices.Contains([]columnEncoding{plainText, base64Text, hexadecimal}, encoding) {
			return formatErrorf("expected values encoded as base64 or as hexadecimal digits, found %q", encoding)
		}
		t.columns = append(t.columns, column{name, encoding})
	}
	return nil
}

// addChunks adds the files with the rows of a table or partition. Chunks are numbered from 0, and @@ marks the last
// one.
func (f archiveFiles) addChunks(d *Dump, t *table, base string, file tableFile) error {
	// Some versions write a single file for an empty table in spite of chunking.
	if whole := base + "." + file.Extension; f.data[whole] {
		d.chunks[whole] = t
		return nil
	}
	for i := 0; file.Chunking; i++ {
		chunk := base + "@" + strconv.Itoa(i) + "." + file.Extension
		last := base + "@@" + strconv.Itoa(i) + "." + file.Extension
		if f.data[last] {
			d.chunks[last] = t
			return nil
		}
		if !f.data[chunk] {
			break
		}
		d.chunks[chunk] = t
	}
	if rows, isKnown := d.rows[t.Schema][t.Table]; isKnown && rows == 0 {
		return nil
	}
	return formatErrorf("expected all rows of table %s in the dump, but a file is missing; the dump is not complete", t)
}

// Objects returns the objects in the dump. If only is set, it returns only the objects of the schema with this name.
func (d *Dump) Objects(only string) []ObjectName {
	var all []ObjectName
	for _, s := range d.schemas {
		if only == "" || only == s.name {
			all = append(all, s.objects...)
		}
	}
	return all
}

// QuoteName returns a name as a quoted SQL identifier.
func QuoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// UnquoteName returns the name of a quoted SQL identifier, which is given without the surrounding quotes.
func UnquoteName(quoted string) string { return strings.ReplaceAll(quoted, "``", "`") }
