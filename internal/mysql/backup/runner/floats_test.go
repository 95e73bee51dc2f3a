// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// neighbors are FLOAT values in SQL. Some differ only after the sixth digit.
const neighbors = "(16777214), (16777215), (16777216), (16777218), (0.1), (0.10000001), (1.17549435e-38), (1.4e-45), (3.40282346e38), (3.4028233e38), (-3.40282346e38)," +
	" (-16777215), (1.0000001), (1.0000002), (0.12345679), (0.12345678), (123456784), (123456792), (9.87654e-20), (9.8765407e-20), (null)"

// floatStatements creates tables with FLOAT columns.
func floatStatements() [][]string {
	const odd = "`odd\nINSERT INTO ``t`` VALUES (1)`"
	return [][]string{
		{"create table app.neighbors (f float, unique key (f))", "insert into app.neighbors values " + neighbors},
		{"set sql_mode = 'REAL_AS_FLOAT'", "create table app.reals (r real, id int auto_increment primary key, unique key (r))", "insert into app.reals (r) values " + neighbors},
		{
			"create table app.computed (f float, third float as (f / 3) stored, twice double as (f * 2) virtual, unique key ((f * 3)), key (third), check (f <> 5))",
			"insert into app.computed (f) values (16777215), (16777216), (0.1), (0.10000001)",
		},
		{
			"create table app.scaled (a float(7,4), b float(20,10), c float(60,30), d float(10,4), e float unsigned zerofill, unique key (a), unique key (d, e))",
			"insert into app.scaled values (123.4567, 0.1, 1e-30, 123456.789, 16777215), (999.9999, 0.00001234567, 1.23456789e-20, 123456.7969, 16777215), (-1, 16777215.5, 3e20, 999999.94, 0.1)",
		},
		{
			"create table app.parted (id int, f float, primary key (id, f)) partition by key (f) partitions 3", "insert into app.parted values (1, 16777215), (1, 16777216), (2, 0.1)",
			"create table app.plain (f float, key (f)) engine = MyISAM", "insert into app.plain values " + neighbors, "create table app.empty (f float, key (f))",
			"create table app.hidden (f float invisible, my_id int primary key)", "insert into app.hidden (f, my_id) values (16777215, 1), (16777217.9, 2)",
			"set sql_generate_invisible_primary_key = on", "create table app.generated (f float)", "insert into app.generated values (16777215), (16777216)",
		},
		{
			"create schema `line\nbreak`", "create table `line\nbreak`." + odd + " (" + odd + " float, `a) VALUES (``;` int)", "insert into `line\nbreak`." + odd + " values (16777215, 1), (16777216, 2)",
			"create schema `app 2`", "create table `app 2`.neighbors (f float)", "insert into `app 2`.neighbors values (33554431), (33554433)",
			"create trigger app.copied after insert on app.empty for each row begin\n/*\n--\n-- Current Database: `line\n--\nINSERT INTO `neighbors` VALUES (1);\n*/\nset @x = 1; end",
		},
		{
			"create table app.kinds (f float, i tinyint, u bigint unsigned, z int(8) zerofill, n decimal(65,30), d double, y year, b bit(13), c char(20) character set latin1, v varchar(40), t text character set cp1251," +
				" bin binary(4), vb varbinary(20), bl blob, e enum('a', 'it''s', 'é'), eb enum('x', 'y') character set binary, s set('a', 'b'), j json, g geometry, p point, da date, ti time(6), dt datetime(3), ts timestamp(6) null, ve vector(3))",
			"insert into app.kinds values (16777215, -128, 18446744073709551615, 7, 12345678901234567890.1234567890123, 0.1, 0, b'1010101010101', 'äöü\\\\', 'it''s \\\"\\n\\r\\0\\Z 😀', 'привет', x'00ff27', x'', x'5c270a0d1a', 'é', 'y', 'a,b'," +
				` '{"a": [1, 2.5, "\\"\\u0000"]}', st_geomfromtext('LINESTRING(0 0, 1.5 1.5)', 4326), point(1, 2), '2026-11-29', '-838:59:59', '2026-11-29 01:02:03.456', '2026-03-29 02:30:00.5', to_vector('[1.5, 2.25, -3]'))`,
			"insert into app.kinds (f, y, d, c, v, bl) values (16777216, 2155, -1e-300, '', '', ''), (null, null, 2.2250738585072014e-308, null, ');(', x'29')",
		},
		{
			"create table app.many (id int auto_increment primary key, f float, v varchar(200))", "insert into app.many (f, v) values (0.1, repeat('\\'),(', 40))",
			"insert into app.many (f, v) with recursive r as (select 1 as n union all select n + 1 from r where n < 900) select n / 7, repeat('x', n % 200) from r",
			"insert into app.many (f, v) select a.f * 3, b.v from app.many a, (select v from app.many limit 20) b",
		},
	}
}

// TestRestoreKeepsFloats covers tables with FLOAT columns, and changes in the binary logs that find rows by a FLOAT.
func TestRestoreKeepsFloats(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	for _, session := range floatStatements() {
		execInSession(t, source, session...)
	}
	e.startShipping(t, source.Address)
	status, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	testenv.ExpectEqual(t, "warnings", []string{"1 tables are not transactional, so their rows may be from another time than the snapshot: app.plain"}, status.Warnings)
	dumped, sums := readState(t, source), readContents(t, source)
	execInSession(t, source, "replace into app.reals (r) values (16777215), (0.10000001)", "insert into app.neighbors values (16777216) on duplicate key update f = 16777220", "delete from app.computed where f = 16777215",
		"update app.neighbors set f = 7 where f > 3.4028234e38", "update app.parted set f = 5 where id = 1 order by f limit 1", "update app.kinds set i = 1", "delete from `app 2`.neighbors limit 1")
	logged, point := readState(t, source), passPoint(t)
	execStatements(t, source, "create schema after_the_point")
	t.Run("floats of the dump are restored", func(t *testing.T) {
		target := e.installation.StartServer(t)
		expectLeftOut(t, e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point = status.Time.Time }))
		expectEqualStates(t, withoutAccounts(dumped), withoutAccounts(readState(t, target)))
		testenv.ExpectEqual(t, "contents", sums, readContents(t, target))
	})
	t.Run("floats of the binary logs are restored", func(t *testing.T) {
		target := e.installation.StartServer(t)
		expectLeftOut(t, e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point = point }))
		expectEqualStates(t, withoutAccounts(logged), withoutAccounts(readState(t, target)))
	})
}

// withoutAccounts removes the accounts, some of which have grants on objects that are gone.
func withoutAccounts(s recordedState) recordedState {
	for key := range s.objects {
		if strings.HasPrefix(key, "account ") {
			delete(s.objects, key)
		}
	}
	return s
}

// TestDumpWithoutExactRowsIsRefused uses a mysqldump that does not write the comment before the rows of a table.
func TestDumpWithoutExactRowsIsRefused(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "create table app.neighbors (f float)")
	path, err := exec.LookPath("mysqldump")
	testenv.ExpectNoError(t, err)
	dir := t.TempDir()
	script := "#!/bin/sh\n'" + path + "' \"$@\" | grep -v '^-- WHERE: '\n"
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, "mysqldump"), []byte(script), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	_, err = e.runBackup(t.Context(), t, source.Address)
	expectError(t, err, "expected the rows of `app`.`neighbors` in the dump, found none")
}

// TestFloatsOfATableThatWaitsForALock covers a table that a client locks while mysqldump reads it.
func TestFloatsOfATableThatWaitsForALock(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "create table app.locked (id int auto_increment primary key, f float, v varchar(1000))", "insert into app.locked (f, v) values (16777215, repeat('x', 1000))")
	for range 14 { // 16 MB are more than the buffers between mysqldump and the server.
		execStatements(t, source, "insert into app.locked (f, v) select f, v from app.locked")
	}
	path, err := exec.LookPath("mysqldump")
	testenv.ExpectNoError(t, err)
	dir := t.TempDir()
	reached, goOn := filepath.Join(dir, "reached"), filepath.Join(dir, "go-on")
	for _, pipe := range []string{reached, goOn} {
		testenv.ExpectNoError(t, syscall.Mkfifo(pipe, 0o600))
	}
	// The script holds the output back from the table's first statement on.
	script := "#!/bin/sh\n'" + path + "' \"$@\" | {\nwhile IFS= read -r line; do\nif [ \"$line\" = 'LOCK TABLES `locked` WRITE;' ]; then echo >'" + reached + "'; read -r word <'" + goOn +
		"'; printf '%s\\n' \"$line\"; exec cat; fi\nprintf '%s\\n' \"$line\"\ndone\n}\n"
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, "mysqldump"), []byte(script), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	ended := make(chan error, 1)
	go func() {
		_, err := e.runBackup(t.Context(), t, source.Address)
		ended <- err
	}()
	_, err = os.ReadFile(reached) // The read returns when the script has reached the table.
	testenv.ExpectNoError(t, err)
	client, err := connect(t, source, "moco-admin", adminPassword).Conn(t.Context())
	testenv.ExpectNoError(t, err)
	locked := make(chan error, 1)
	go func() {
		_, err := client.ExecContext(t.Context(), "lock tables app.locked write")
		locked <- err
	}()
	testenv.Eventually(t, "the client waits for the lock", func() error {
		return testenv.ErrorIf(queryOne(t, source, "select count(*) from performance_schema.processlist where info = 'lock tables app.locked write'") == "0", "not yet")
	})
	testenv.ExpectNoError(t, os.WriteFile(goOn, []byte("on\n"), 0o600))
	testenv.ExpectNoError(t, <-locked)
	_, err = client.ExecContext(t.Context(), "unlock tables")
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, <-ended)
	target := e.installation.StartServer(t)
	expectLeftOut(t, e.restoreWithResult(t, target, unchanged))
	testenv.ExpectEqual(t, "contents", readContents(t, source), readContents(t, target))
}
