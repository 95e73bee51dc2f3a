// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"archive/tar"
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// chunkRows is the number of rows per file in the dumps of these tests.
const chunkRows = 3

// mocoStatements fills a server with data that MySQL Shell dumps differently than mysqldump.
func mocoStatements() []string {
	return slices.Concat(schemaStatements(), []string{
		"create table app.empty (id int primary key)",
		"create table app.generated (id int primary key, twice int as (id * 2) stored, thrice int as (id * 3) virtual)",
		"insert into app.generated (id) values (1), (2), (3), (4), (5), (6), (7)",
		"create table app.hex_values (id int auto_increment primary key, bits bit(12), raw varbinary(300), place point srid 4326, wide longblob, txt text, en enum('a', ''), num decimal(30, 10), d double)",
		"insert into app.hex_values (bits, raw, place, wide, txt, en, num, d) values (b'101010101010', x'00', st_geomfromtext('point(1 2)', 4326), repeat(x'ff000a0d5c27', 5000), 'a\tb\\\\N\\nc\r\\0\\Z''\"`', 'a', -1.5, 1e-300)," +
			" (null, null, null, null, null, null, null, null), (b'0', '', null, '', '', '', 0, 0), (b'1', x'5c4e', null, x'5c4e', '\\\\N', 'a', 99999999999999999999.0000000001, 1.7976931348623157e308)",
		"create table app.base64_values like app.hex_values", "insert into app.base64_values select * from app.hex_values",
		"set session sql_mode = ''", "create table app.zero (id int auto_increment primary key, d date, t timestamp null)",
		"set session sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'", "insert into app.zero values (0, '0000-00-00', '2026-11-01 12:00:00'), (-3, '2026-02-30', null)", "set session sql_mode = default",
		"create table app.parts (id int primary key, v text) partition by hash (id) partitions 3", "insert into app.parts select id, repeat('x', id) from app.generated",
		"create table app.gone_soon (id int)", "create view app.broken as select * from app.gone_soon", "drop table app.gone_soon",
		"create view `odd ``name`.late as select x from `odd ``name`.`a b`", "create view app.over_other as select x from `odd ``name`.late",
		"use app",
		"create trigger before_insert before insert on app.generated for each row begin\n-- begin trigger `app`.`other`\nset new.id = new.id;\nend",
		"create procedure app.`odd ``p`() begin\nselect ';;';\r\nselect 2;\nend",
		"create event app.`odd ``e` on schedule every 1 day disable do begin select 1; end",
	})
}

// shellDumper writes a dump in the format of MySQL Shell.
type shellDumper struct {
	*sql.Conn

	t     *testing.T
	files map[string]string
	rows  map[string]map[string]int64
	sizes map[string]int64
}

func newShellDumper(t *testing.T, s *mysqld.Server) *shellDumper {
	t.Helper()
	c, err := connect(t, s, "moco-admin", adminPassword).Conn(t.Context())
	testenv.ExpectNoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // The statements have returned.
	d := &shellDumper{Conn: c, t: t, files: map[string]string{}, rows: map[string]map[string]int64{}, sizes: map[string]int64{}}
	for _, statement := range []string{"set session time_zone = '+00:00'", "set session sql_mode = ''"} {
		_, err := c.ExecContext(t.Context(), statement)
		testenv.ExpectNoError(t, err)
	}
	return d
}

// query returns all rows; a NULL is nil.
func (d *shellDumper) query(query string) [][]*string {
	d.t.Helper()
	rows, err := d.QueryContext(d.t.Context(), query)
	if err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	testenv.ExpectNoError(d.t, err)
	var all [][]*string
	for rows.Next() {
		row, into := make([]*string, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		testenv.ExpectNoError(d.t, rows.Scan(into...))
		all = append(all, row)
	}
	testenv.ExpectNoError(d.t, rows.Err())
	return all
}

func (d *shellDumper) column(query string) []string {
	d.t.Helper()
	all := []string{}
	for _, row := range d.query(query) {
		all = append(all, *row[0])
	}
	return all
}

func (d *shellDumper) json(name string, value any) {
	text, err := json.MarshalIndent(value, "", "    ")
	testenv.ExpectNoError(d.t, err)
	d.files[name] = string(text)
}

func quoteID(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func baseOf(names ...string) string {
	for i, name := range names {
		names[i] = strings.NewReplacer("%", "%25", " ", "%20", "`", "%60", "@", "%40").Replace(name)
	}
	return strings.Join(names, "@")
}

// dump dumps all schemas and accounts, and returns the files of the dump by name.
func (d *shellDumper) dump() map[string]string {
	schemas := d.column("select schema_name from information_schema.schemata where schema_name not in ('information_schema', 'mysql', 'performance_schema', 'sys')")
	bases := map[string]string{}
	for _, schema := range schemas {
		bases[schema] = baseOf(schema)
		d.dumpSchema(schema)
	}
	d.dumpUsers()
	d.json("@.json", map[string]any{
		"dumper": "mysqlsh", "version": "2.0.1", "schemas": schemas, "basenames": bases, "defaultCharacterSet": "utf8mb4", "tzUtc": true,
		"serverVersion": "9.7.0", "gtidExecuted": d.column("select @@gtid_executed")[0], "gtidExecutedInconsistent": false, "consistent": true,
		"capabilities": []map[string]string{{"id": "partition_awareness"}}, "users": []string{},
	})
	d.json("@.done.json", map[string]any{"tableRows": d.rows, "chunkFileBytes": d.sizes})
	d.files["@.sql"], d.files["@.post.sql"] = "-- MySQLShell dump 2.0.1\n", "-- MySQLShell dump 2.0.1\n"
	return d.files
}

const savedSettings = "/*!50003 SET @saved_sql_mode = @@sql_mode */ %[1]s\n/*!50003 SET sql_mode = '%[2]s' */ %[1]s\n"

func (d *shellDumper) dumpSchema(schema string) {
	base, quoted := baseOf(schema), quoteID(schema)
	text := &strings.Builder{}
	fmt.Fprintf(text, "-- MySQLShell dump 2.0.1\n--\n\n--\n-- Current Database: %s\n--\n\n%s;\n\nUSE %s;\n", quoted, *d.query("show create database if not exists " + quoted)[0][1], quoted)
	events := d.column("select event_name from information_schema.events where event_schema = '" + schema + "'")
	for _, name := range events {
		row := d.query("show create event " + quoted + "." + quoteID(name))[0]
		fmt.Fprintf(text, "-- begin event %s.%s\n/*!50106 DROP EVENT IF EXISTS %[2]s */;\nDELIMITER ;;\n", quoted, quoteID(name))
		fmt.Fprintf(text, savedSettings, ";;", *row[1])
		fmt.Fprintf(text, "/*!50106 %s */ ;;\n/*!50003 SET sql_mode = @saved_sql_mode */ ;;\nDELIMITER ;\n-- end event %s.%s\n\n", *row[3], quoted, quoteID(name))
	}
	routines := map[string][]string{"FUNCTION": {}, "PROCEDURE": {}}
	for kind := range routines {
		for _, name := range d.column("select routine_name from information_schema.routines where routine_type = '" + kind + "' and routine_schema = '" + schema + "'") {
			routines[kind] = append(routines[kind], name)
			row := d.query("show create " + kind + " " + quoted + "." + quoteID(name))[0]
			fmt.Fprintf(text, "-- begin %s %s.%s\n/*!50003 DROP %s IF EXISTS %[3]s */;\n", strings.ToLower(kind), quoted, quoteID(name), kind)
			fmt.Fprintf(text, savedSettings, ";", *row[1])
			fmt.Fprintf(text, "DELIMITER ;;\n%s ;;\nDELIMITER ;\n/*!50003 SET sql_mode = @saved_sql_mode */ ;\n-- end %s %s.%s\n\n", *row[2], strings.ToLower(kind), quoted, quoteID(name))
		}
	}
	d.files[base+".sql"] = text.String()
	tables := d.column("select table_name from information_schema.tables where table_type = 'BASE TABLE' and table_schema = '" + schema + "'")
	views := d.column("select table_name from information_schema.tables where table_type = 'VIEW' and table_schema = '" + schema + "'")
	bases := map[string]string{}
	for _, name := range tables {
		bases[name] = baseOf(schema, name)
		d.dumpTable(schema, name)
	}
	for _, name := range views {
		bases[name] = baseOf(schema, name)
		d.dumpView(schema, name)
	}
	d.json(base+".json", map[string]any{
		"schema": schema, "includesDdl": true, "includesViewsDdl": true, "includesData": true, "tables": tables, "views": views,
		"events": events, "functions": routines["FUNCTION"], "procedures": routines["PROCEDURE"], "basenames": bases,
	})
}

func (d *shellDumper) dumpView(schema, name string) {
	base, quoted := baseOf(schema, name), quoteID(name)
	var columns []string
	for _, column := range d.column("select column_name from information_schema.columns where table_schema = '" + schema + "' and table_name = '" + name + "' order by ordinal_position") {
		columns = append(columns, "\n 1 AS "+quoteID(column))
	}
	if len(columns) == 0 {
		columns = []string{" 1 AS `unknown`"}
	}
	d.files[base+".pre.sql"] = "--\n-- Temporary view structure for view " + quoted + "\n--\n\n/*!50001 DROP VIEW IF EXISTS " + quoted + "*/;\n/*!50001 CREATE VIEW " + quoted + " AS SELECT" + strings.Join(columns, ",") + " */;\n"
	row := d.query("show create view " + quoteID(schema) + "." + quoted)[0]
	d.files[base+".sql"] = "--\n-- Final view structure for view " + quoted + "\n--\n\n/*!50001 DROP VIEW IF EXISTS " + quoted + "*/;\n/*!50001 " + *row[1] + " */;\n"
}

func (d *shellDumper) dumpTable(schema, name string) {
	base, full := baseOf(schema, name), quoteID(schema)+"."+quoteID(name)
	d.files[base+".sql"] = "--\n-- Table structure for table " + quoteID(name) + "\n--\n\n" +
		strings.Replace(*d.query("show create table " + full)[0][1], "CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1) + ";\n"
	where := " where table_schema = '" + schema + "' and table_name = '" + name + "'"
	columns, selected, decode := []string{}, []string{}, map[string]string{}
	for _, row := range d.query("select column_name, data_type from information_schema.columns" + where + " and generation_expression = '' order by ordinal_position") {
		column := *row[0]
		columns = append(columns, column)
		isBinary := slices.Contains([]string{"bit", "blob", "longblob", "varbinary", "point"}, *row[1])
		switch {
		case isBinary && strings.HasPrefix(name, "hex"):
			decode[column] = "UNHEX"
			selected = append(selected, "hex("+quoteID(column)+")")
		case isBinary:
			decode[column] = "FROM_BASE64"
			selected = append(selected, "to_base64("+quoteID(column)+")")
		default:
			selected = append(selected, quoteID(column))
		}
	}
	triggers := d.column("select trigger_name from information_schema.triggers where event_object_schema = '" + schema + "' and event_object_table = '" + name + "'")
	text := &strings.Builder{}
	for _, trigger := range triggers {
		row := d.query("show create trigger " + quoteID(schema) + "." + quoteID(trigger))[0]
		fmt.Fprintf(text, "-- begin trigger %s.%s\n", quoteID(schema), quoteID(trigger))
		fmt.Fprintf(text, savedSettings, ";", *row[1])
		fmt.Fprintf(text, "/*!50032 DROP TRIGGER IF EXISTS %s */;\nDELIMITER ;;\n/*!50003 %s */;;\nDELIMITER ;\n/*!50003 SET sql_mode = @saved_sql_mode */ ;\n-- end trigger %s.%s\n\n",
			quoteID(trigger), *row[2], quoteID(schema), quoteID(trigger))
	}
	if len(triggers) > 0 {
		d.files[base+".triggers.sql"] = text.String()
	}
	partitions := map[string]string{}
	for _, partition := range d.column("select partition_name from information_schema.partitions" + where + " and partition_name is not null") {
		partitions[partition] = baseOf(schema, name, partition)
		d.dumpRows(schema, name, partitions[partition], "select "+strings.Join(selected, ", ")+" from "+full+" partition ("+quoteID(partition)+")")
	}
	if len(partitions) == 0 {
		d.dumpRows(schema, name, base, "select "+strings.Join(selected, ", ")+" from "+full)
	}
	d.json(base+".json", map[string]any{
		"options": map[string]any{
			"schema": schema, "table": name, "columns": columns, "decodeColumns": decode, "defaultCharacterSet": "utf8mb4", "fieldsTerminatedBy": "\t",
			"fieldsEnclosedBy": "", "fieldsOptionallyEnclosed": false, "fieldsEscapedBy": `\`, "linesTerminatedBy": "\n",
		},
		"triggers": triggers, "includesData": true, "includesDdl": true, "extension": "tsv.zst", "chunking": true, "compression": "zstd", "basenames": partitions,
	})
}

var tsvEscapes = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`, "\x00", `\0`, "\b", `\b`, "\x1a", `\Z`)

func (d *shellDumper) dumpRows(schema, name, base, query string) {
	var lines []string
	for _, row := range d.query(query) {
		var fields []string
		for _, value := range row {
			field := `\N`
			if value != nil {
				field = tsvEscapes.Replace(*value)
			}
			fields = append(fields, field)
		}
		lines = append(lines, strings.Join(fields, "\t")+"\n")
	}
	if d.rows[schema] == nil {
		d.rows[schema] = map[string]int64{}
	}
	d.rows[schema][name] += int64(len(lines))
	last := max(0, len(lines)-1) / chunkRows
	for i := 0; i <= last; i++ {
		text := strings.Join(lines[i*chunkRows:min(len(lines), (i+1)*chunkRows)], "")
		file := base + "@" + strconv.Itoa(i) + ".tsv.zst"
		if i == last {
			file = base + "@@" + strconv.Itoa(i) + ".tsv.zst"
		}
		d.sizes[file] = int64(len(text))
		d.files[file], d.files[file+".idx"] = packText(d.t, text), "12345678"
	}
}

func packText(t *testing.T, text string) string {
	t.Helper()
	packer, err := zstd.NewWriter(nil)
	testenv.ExpectNoError(t, err)
	return string(packer.EncodeAll([]byte(text), nil))
}

var defaultRole = regexp.MustCompile(` DEFAULT ROLE (\S+)`)

func (d *shellDumper) dumpUsers() {
	text, roles := &strings.Builder{}, &strings.Builder{}
	fmt.Fprint(text, "--\n-- Dumping user accounts\n--\n\n")
	accounts := d.column("select concat(quote(user), '@', quote(host)) from mysql.user where user not like 'mysql.%'")
	for _, account := range accounts {
		create := strings.Replace(*d.query("show create user " + account)[0][0], "CREATE USER", "CREATE USER IF NOT EXISTS", 1)
		if found := defaultRole.FindStringSubmatch(create); found != nil {
			create = strings.Replace(create, found[0], "", 1)
			fmt.Fprintf(roles, "-- begin default role %s\nSET DEFAULT ROLE %s TO %[1]s;\n-- end default role %[1]s\n\n", account, found[1])
		}
		fmt.Fprintf(text, "-- begin user %s\n%s;\n-- end user %[1]s\n\n", account, create)
	}
	for _, account := range accounts {
		fmt.Fprintf(text, "-- begin grants %s\n%s;\n-- end grants %[1]s\n\n", account, strings.Join(d.column("show grants for "+account), ";\n"))
	}
	d.files["@.users.sql"] = text.String() + roles.String() + "-- End of dumping user accounts\n\n"
}

// buildTar writes files in an order that differs from that of their names, as tar does.
func buildTar(t *testing.T, folder string, files map[string]string) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	testenv.ExpectNoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755}))
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(files))) {
		testenv.ExpectNoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + name, Mode: 0o644, Size: int64(len(files[name]))}))
		_, err := io.WriteString(w, files[name])
		testenv.ExpectNoError(t, err)
	}
	testenv.ExpectNoError(t, w.Close())
	return archive.Bytes()
}

func (e *testEnv) put(t *testing.T, key string, content []byte) {
	t.Helper()
	store, err := bucket.OpenStore(t.Context(), e.bucket)
	testenv.ExpectNoError(t, err)
	_, err = store.PutObject(t.Context(), key, bytes.NewReader(content))
	testenv.ExpectNoError(t, err)
}

func mocoKey(at time.Time, file string) string {
	return "moco/ns/test/" + at.UTC().Format("20060102-150405") + "/" + file
}

// putMocoBinlogs stores the binary logs since a GTID set, as MOCO does with mysqlbinlog.
func (e *testEnv) putMocoBinlogs(t *testing.T, s *mysqld.Server, at time.Time, since string) {
	t.Helper()
	dir := t.TempDir()
	first := newShellDumper(t, s).column("show binary logs")[0]
	cmd := exec.CommandContext(t.Context(), "mysqlbinlog", "--no-defaults", "-h", s.Address, "--port", strconv.Itoa(mysqld.Port), "--protocol=tcp", "-umoco-admin",
		"--get-server-public-key", "--read-from-remote-source=BINLOG-DUMP-GTIDS", "--exclude-gtids="+since, "-t", "--raw", "--result-file="+dir+"/", first)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+adminPassword)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mysqlbinlog: %v: %s", err, out)
	}
	files := map[string]string{}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	testenv.ExpectNoError(t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		testenv.ExpectNoError(t, err)
		files[filepath.Base(name)] = string(text)
	}
	if len(files) < 2 {
		t.Fatalf("expected several binary logs, found %d", len(files))
	}
	e.put(t, mocoKey(at, "binlog.tar.zst"), []byte(packText(t, string(buildTar(t, "binlog", files)))))
}

func TestMocoBackupIsRestored(t *testing.T) {
	e := newTestEnv(t)
	source := e.installation.StartServer(t)
	execStatements(t, source, "set global super_read_only = off", "set global read_only = off")
	execInSession(t, source, mocoStatements()...)
	made := time.Now().Truncate(time.Second)
	dumper := newShellDumper(t, source)
	files := dumper.dump()
	dumped, gtids := readContents(t, source), queryOne(t, source, "select @@gtid_executed")
	e.put(t, mocoKey(made, "dump.tar"), buildTar(t, "dump", files))
	broken := "view app.broken is not restored: MySQL's error 1146: Table 'app.gone_soon' doesn't exist"
	t.Run("the dump is restored", func(t *testing.T) {
		target := e.installation.StartServer(t)
		result := e.restoreWithResult(t, target, unchanged)
		testenv.ExpectEqual(t, "parts left out", []string{broken}, result.Warnings[:result.LeftOut])
		testenv.ExpectEqual(t, "time", made.UTC(), result.Time.UTC())
		expectMocoContents(t, dumped, target)
		testenv.ExpectEqual(t, "transactions", gtids, queryOne(t, target, "select @@gtid_executed"))
		app := connect(t, target, "app", "app-secret")
		if _, err := app.ExecContext(t.Context(), "select * from app.t"); err != nil {
			t.Errorf("expected account app with its password and its role's rights, found %v", err)
		}
		testenv.ExpectNoError(t, e.runRestore(t, target.Address)) // A second run has nothing to do.
	})
	t.Run("one schema of the dump is restored", func(t *testing.T) {
		target := e.installation.StartServer(t)
		result := e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Schema, o.Users = "odd `name", []string{"reader"} })
		testenv.ExpectEqual(t, "left out", 0, result.LeftOut)
		testenv.ExpectEqual(t, "rows", "1", queryOne(t, target, "select count(*) from `odd ``name`.late"))
		testenv.ExpectEqual(t, "other schemas", "0", queryOne(t, target, "select count(*) from information_schema.schemata where schema_name = 'app'"))
	})

	testMocoBinlogs(t, e, source, made)
	testRefusedMocoDumps(t, e, files)
}

// expectMocoContents compares everything except the view that cannot be restored.
func expectMocoContents(t *testing.T, want map[string]string, target *mysqld.Server) {
	t.Helper()
	want = maps.Clone(want)
	delete(want, "views app.broken")
	testenv.ExpectEqual(t, "contents", want, readContents(t, target))
}

// testMocoBinlogs restores to points after the dump, which was made at the given time.
func testMocoBinlogs(t *testing.T, e *testEnv, source *mysqld.Server, made time.Time) {
	t.Helper()
	gtids := queryOne(t, source, "select @@gtid_executed")
	execStatements(t, source, "flush binary logs", "insert into app.generated (id) values (100)", "create table app.later (id int primary key)", "insert into app.later values (1)")
	point := passPoint(t)
	want := readContents(t, source)
	execStatements(t, source, "flush binary logs", "insert into app.later values (2)", "drop table app.empty")
	e.putMocoBinlogs(t, source, made, gtids)
	e.put(t, mocoKey(time.Now().Add(time.Second), "dump.tar"), []byte("the next backup"))
	t.Run("a point after the dump is restored", func(t *testing.T) {
		target := e.installation.StartServer(t)
		result := e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point = point })
		testenv.ExpectEqual(t, "time", point.UTC(), result.Time.UTC())
		expectMocoContents(t, want, target)
	})
	t.Run("one schema is restored to a point after the dump", func(t *testing.T) {
		target := e.installation.StartServer(t)
		e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point, o.Schema = point, "app" })
		testenv.ExpectEqual(t, "rows", "1", queryOne(t, target, "select count(*) from app.later"))
	})
}

// testRefusedMocoDumps checks that nothing is restored from an incomplete or unsupported dump.
func testRefusedMocoDumps(t *testing.T, e *testEnv, files map[string]string) {
	t.Helper()
	target := e.installation.StartServer(t)
	at := time.Now().Truncate(time.Second).AddDate(0, 0, -1)
	for name, row := range map[string]struct {
		change func(map[string]string)
		folder string
		words  []string
	}{
		"an unknown version of the dump format":       {change: func(f map[string]string) { f["@.json"] = strings.Replace(f["@.json"], "2.0.1", "3.0.0", 1) }, words: []string{"1.0 or 2.0", "3.0.0"}},
		"an unknown minor version of the dump format": {change: func(f map[string]string) { f["@.json"] = strings.Replace(f["@.json"], "2.0.1", "2.1.0", 1) }, words: []string{"1.0 or 2.0", "2.1.0"}},
		"an unknown capability":                       {change: func(f map[string]string) { f["@.json"] = strings.Replace(f["@.json"], "partition_awareness", "new", 1) }, words: []string{"capabilities", "new"}},
		"an unfinished dump":                          {change: func(f map[string]string) { delete(f, "@.done.json") }, words: []string{"@.done.json", "not complete"}},
		"a missing chunk":                             {change: func(f map[string]string) { delete(f, "app@generated@1.tsv.zst") }, words: []string{"`app`.`generated`", "not complete"}},
		"a missing last chunk":                        {change: func(f map[string]string) { delete(f, "app@generated@@2.tsv.zst") }, words: []string{"`app`.`generated`", "not complete"}},
		"a missing definition":                        {change: func(f map[string]string) { delete(f, "app@t.sql") }, words: []string{"app@t.sql"}},
		"an unknown encoding": {change: func(f map[string]string) {
			f["app@hex_values.json"] = strings.ReplaceAll(f["app@hex_values.json"], "UNHEX", "ROT13")
		}, words: []string{"ROT13"}},
		"a path that leaves the folder":     {change: func(f map[string]string) { f["../../etc/passwd"] = "x" }, words: []string{"dump/../../etc/passwd"}},
		"a path to a sibling of the folder": {folder: "elsewhere", words: []string{"elsewhere/"}},
		"definitions without an end marker": {change: func(f map[string]string) { f["app.sql"] = strings.Repeat(" ", 17<<20) }, words: []string{"app.sql", "at most"}},
		"accounts without their end marker": {change: func(f map[string]string) { f["@.users.sql"] = "-- begin user 'a'@'%'\nCREATE USER 'a'@'%';\n" }, words: []string{"@.users.sql"}},
	} {
		t.Run(name, func(t *testing.T) {
			changed := maps.Clone(files)
			if row.change != nil {
				row.change(changed)
			}
			folder := "dump"
			if row.folder != "" {
				folder = row.folder
			}
			e.put(t, mocoKey(at, "dump.tar"), buildTar(t, folder, changed))
			o := e.restoreOptions(target.Address)
			o.Point = at.Add(time.Second)
			err := runner.RunRestore(t.Context(), o)
			expectError(t, err, row.words...)
			if _, isRefused := errors.AsType[*runner.RefusedError](err); !isRefused {
				t.Errorf("expected an error that is not retried, found %v", err)
			}
			testenv.ExpectEqual(t, "schemas", "0", queryOne(t, target, "select count(*) from information_schema.schemata where schema_name in ('app', 'torpor_restoring')"))
		})
	}
}
