// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// changeDump changes the dump of the only backup in a folder.
func changeDump(t *testing.T, folder string, change func(string) string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "moco/ns/test/*/dump.sql.zst"))
	if err != nil || len(found) != 1 {
		t.Fatalf("expected one dump, found %q, %v", found, err)
	}
	packed, err := os.ReadFile(found[0])
	testenv.ExpectNoError(t, err)
	reader, err := zstd.NewReader(bytes.NewReader(packed))
	testenv.ExpectNoError(t, err)
	defer reader.Close()
	var plain bytes.Buffer
	_, err = plain.ReadFrom(reader)
	testenv.ExpectNoError(t, err)
	writer, err := zstd.NewWriter(nil)
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, os.WriteFile(found[0], writer.EncodeAll([]byte(change(plain.String())), nil), 0o600))
}

// TestRestoreIsComparedWithTheBackup covers dumps without some rows and objects, and dumps whose definitions differ
// from the source.
func TestRestoreIsComparedWithTheBackup(t *testing.T) {
	e := newTestEnv(t)
	e.bucket = bucket.Config{Folder: t.TempDir()}
	source := e.startPrimary(t)
	execStatements(t, source, "create table app.counted (id int primary key)", "insert into app.counted values (1), (2), (3)", "create table app.engine (id int) engine = myisam",
		"create table app.missing (id int primary key)", "create procedure app.missing() select 1", "create view app.short as select id, v from app.t where id > 5",
		"create table app.parts (id int primary key, v int default 5, w int, key by_v (v))",
		"create table app.part_child (id int primary key, p int, constraint to_parts foreign key (p) references app.parts (id), constraint lost check (p > 0))",
		"create table app.spread (id int primary key) partition by hash (id) partitions 3")
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	target := e.installation.StartServer(t)
	expectLeftOut(t, e.restoreWithResult(t, target, unchanged))

	changeDump(t, e.bucket.Folder, func(sql string) string {
		for pattern, with := range map[string]string{
			"VALUES \\(1\\),\\(2\\),\\(3\\);":                     "VALUES (1),(3);",
			"(?s)CREATE TABLE `missing` .*?;\n":                   "",
			"(?s)LOCK TABLES `missing` .*?UNLOCK TABLES;\n":       "",
			"CREATE DEFINER=[^ ]+ PROCEDURE `missing`[^;]*?\n?;;": "SELECT 1 ;;",
			"`id` > 5\\)":          "`id` > 6)",
			"RETURN 1|return 1":    "return 2",
			"`v` int DEFAULT '5'":  "`v` int DEFAULT '6'",
			"KEY `by_v` \\(`v`\\)": "KEY `by_v` (`w`)",
			",\n  CONSTRAINT `to_parts` FOREIGN KEY \\(`p`\\) REFERENCES `parts` \\(`id`\\)": "",
			",\n  CONSTRAINT `lost` CHECK \\(\\(`p` > 0\\)\\)":                               "",
			"PARTITIONS 3": "PARTITIONS 4",
		} {
			changed := regexp.MustCompile(pattern).ReplaceAllString(sql, with)
			if changed == sql {
				t.Errorf("expected %s in the dump, found none", pattern)
			}
			sql = changed
		}
		return sql
	})
	target = e.installation.StartServer(t)
	expectLeftOut(t, e.restoreWithResult(t, target, unchanged),
		"table `app`.`counted` has 2 rows, but 3 in the backup", "table `app`.`missing` is in the backup, but is missing after the load",
		"procedure `app`.`missing` is in the backup, but is missing after the load", "the definition of view `app`.`short` differs from that in the backup",
		"the definition of function `app`.`f` differs from that in the backup",
		"the definition of the attributes of table `app`.`parts` differs", "the definition of the indexes of table `app`.`parts` differs",
		"the definition of the checks of table `app`.`part_child` differs",
		"the definition of the foreign keys of table `app`.`part_child` differs", "the definition of the partitions of table `app`.`spread` differs")

	t.Run("a restore of one schema ignores other schemas", func(t *testing.T) {
		target := e.installation.StartServer(t)
		expectLeftOut(t, e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Schema = "odd `name" }))
	})
	t.Run("a backup without recorded contents is not compared", func(t *testing.T) {
		found, err := filepath.Glob(filepath.Join(e.bucket.Folder, "moco/ns/test/*/backup.json"))
		testenv.ExpectNoError(t, err)
		text, err := os.ReadFile(found[0])
		testenv.ExpectNoError(t, err)
		testenv.ExpectNoError(t, os.WriteFile(found[0], bytes.Replace(text, []byte(`"contents"`), []byte(`"nothing"`), 1), 0o600))
		target := e.installation.StartServer(t)
		expectLeftOut(t, e.restoreWithResult(t, target, unchanged))
	})
}

// TestRowsOfTheSnapshotAreCounted covers a table that grows while it is dumped and counted.
func TestRowsOfTheSnapshotAreCounted(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	fillLargeTable(t, source)
	w := startRowWriter(t, source)
	waitForRows(t, source, 5)
	for range 3 {
		_, err := e.runBackup(t.Context(), t, source.Address)
		testenv.ExpectNoError(t, err)
	}
	w.stop()
	expectLeftOut(t, e.restoreWithResult(t, e.installation.StartServer(t), unchanged))
}
