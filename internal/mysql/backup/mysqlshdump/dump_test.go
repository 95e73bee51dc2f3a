// SPDX-License-Identifier: Apache-2.0

package mysqlshdump_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// smallDump returns a dump of one table with a text column, a binary column, and the given rows.
func smallDump(t *testing.T, rows string) map[string]string {
	t.Helper()
	packer, err := zstd.NewWriter(nil)
	testenv.ExpectNoError(t, err)
	return map[string]string{
		"@.json":      `{"version": "1.0.2", "schemas": ["s"], "defaultCharacterSet": "utf8mb4", "tzUtc": true, "gtidExecuted": "", "consistent": true}`,
		"@.done.json": `{"end": ""}`,
		"s.json":      `{"schema": "s", "tables": ["t"]}`,
		"s.sql":       "--\n-- Current Database: s\n--\n\nCREATE DATABASE IF NOT EXISTS `s`;\n",
		"s@t.sql":     "CREATE TABLE `t` (x);\n",
		"s@t.json": `{"includesData": true, "extension": "tsv.zst", "chunking": false, "options": {"columns": ["a", "b"], "decodeColumns": {"b": "FROM_BASE64"},
			"defaultCharacterSet": "utf8mb4", "fieldsTerminatedBy": "\t", "fieldsEscapedBy": "\\", "linesTerminatedBy": "\n"}}`,
		"s@t.tsv.zst": string(packer.EncodeAll([]byte(rows), nil)),
	}
}

func buildTar(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		testenv.ExpectNoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "dump/" + name, Size: int64(len(files[name]))}))
		_, err := io.WriteString(w, files[name])
		testenv.ExpectNoError(t, err)
	}
	testenv.ExpectNoError(t, w.Close())
	return archive.Bytes()
}

func write(t *testing.T, files map[string]string) (string, map[mysqlshdump.TableName]int64, error) {
	t.Helper()
	archive := buildTar(t, files)
	d, err := mysqlshdump.Read(bytes.NewReader(archive))
	if err != nil {
		return "", nil, err
	}
	var text strings.Builder
	rows, err := d.Write(&text, bytes.NewReader(archive), "")
	return text.String(), rows, err
}

func TestRows(t *testing.T) {
	long := strings.Repeat("x", 600_000)
	for name, row := range map[string]struct{ rows, want string }{
		"a NULL differs from the text of its escape sequence":         {"\\N\t\\N\n\\\\N\t\n", "(NULL,NULL),\n('\\\\N','');"},
		"escape sequences of LOAD DATA are converted to those of SQL": {"a\\tb\\nc\\rd\\0e\\Zf\\\\g'h\\x\t\\N\n", "('a\tb\\nc\\rd\\0e\\Zf\\\\g\\'hx',NULL);"},
		"base64 with line breaks is decoded":                          {"\tAP8A\\n/w==\n", "('',0x00ff00ff);"},
		"rows beyond the size limit are in another statement":         {long + "\t\n" + long + "\t\n" + long + "\t\n", "('" + long + "',''),\n('" + long + "','');\nINSERT INTO `t` (`a`,`b`) VALUES\n('" + long + "','');"},
	} {
		t.Run(name, func(t *testing.T) {
			text, rows, err := write(t, smallDump(t, row.rows))
			testenv.ExpectNoError(t, err)
			if !strings.Contains(text, "\nINSERT INTO `t` (`a`,`b`) VALUES\n"+row.want+"\n") {
				t.Errorf("expected the rows %.200q, found %.2000q", row.want, text)
			}
			testenv.ExpectEqual(t, "number of rows", int64(strings.Count(row.rows, "\n")), rows[mysqlshdump.TableName{Schema: "s", Table: "t"}])
		})
	}
}

func TestDamagedRows(t *testing.T) {
	for name, row := range map[string]struct {
		rows   string
		change func(map[string]string)
		want   string
	}{
		"a row with too few columns: an error":            {rows: "a\n", want: "expected 2 values, found 1"},
		"a row with too many columns: an error":           {rows: "a\t\tb\n", want: "expected 2 values, found more"},
		"a last row without a line break: an error":       {rows: "a\t\nb\t", want: "line break after the last row"},
		"truncated base64: an error":                      {rows: "a\tAP8\n", want: "column `b`: expected base64"},
		"base64 with padding in the middle: an error":     {rows: "a\t" + strings.Repeat("AAAA", 1023) + "AA==AAAA\n", want: "expected base64"},
		"a value that ends with a backslash: an error":    {rows: "a\\\t\n", want: "after a backslash"},
		"a file with fewer bytes than recorded: an error": {rows: "a\t\n", change: func(f map[string]string) { f["@.done.json"] = `{"chunkFileBytes": {"s@t.tsv.zst": 4}}` }, want: "expected 4 bytes of rows, found 3"},
		"a table with fewer rows than recorded: an error": {rows: "a\t\n", change: func(f map[string]string) { f["@.done.json"] = `{"tableRows": {"s": {"t": 2}}}` }, want: "expected 2 rows of table `s`.`t`, found 1"},
		"an uncompressed file: an error":                  {change: func(f map[string]string) { f["s@t.tsv.zst"] = "a\t\n" }, want: "s@t.tsv.zst"},
	} {
		t.Run(name, func(t *testing.T) {
			files := smallDump(t, row.rows)
			if row.change != nil {
				row.change(files)
			}
			_, _, err := write(t, files)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("expected %q, found %v", row.want, err)
			}
		})
	}
}

func TestNamesWithLineBreaks(t *testing.T) {
	files := smallDump(t, "a\t\n")
	files["s.json"] = `{"schema": "s", "tables": ["t\n; DROP"], "basenames": {"t\n; DROP": "s@t"}}`
	text, _, err := write(t, files)
	testenv.ExpectNoError(t, err)
	if !strings.Contains(text, "\n-- Dumping data for table `t ; DROP`\n--\n\nINSERT INTO `t\n; DROP` (") {
		t.Errorf("expected the name in one line of the comment, found %q", text)
	}
}

func TestObjects(t *testing.T) {
	files := smallDump(t, "")
	files["s.json"] = "{\"tables\": [\"t\"], \"views\": [], \"events\": [\"`a``b`\"], \"functions\": [\"`\"], \"procedures\": [\"p\"]}"
	d, err := mysqlshdump.Read(bytes.NewReader(buildTar(t, files)))
	testenv.ExpectNoError(t, err)
	want := []mysqlshdump.ObjectName{{Kind: "table", Schema: "s", Name: "t"}, {Kind: "event", Schema: "s", Name: "a`b"}, {Kind: "function", Schema: "s", Name: "`"}, {Kind: "procedure", Schema: "s", Name: "p"}}
	testenv.ExpectEqual(t, "objects", want, d.Objects("s"))
	testenv.ExpectEqual(t, "objects of another schema", []mysqlshdump.ObjectName(nil), d.Objects("other"))
}

func TestAccounts(t *testing.T) {
	files := smallDump(t, "")
	files["@.users.sql"] = "--\n-- Dumping user accounts\n--\n\n" +
		"-- begin user 'a\\'b'@'%'\nCREATE USER IF NOT EXISTS 'a\\'b'@`%` IDENTIFIED WITH 'x' AS 'one;\\'two\n;''' COMMENT \";\";\n/* ALTER USER 'a'; */;\n-- end user 'a\\'b'@'%'\n\n" +
		"-- begin user 'mysql.sys'@'%'\nCREATE USER 'mysql.sys'@'%';\n-- end user 'mysql.sys'@'%'\n\n" +
		"-- begin grants 'a\\'b'@'%'\nGRANT USAGE ON *.* TO 'a\\'b'@'%';\nREVOKE SELECT ON `x;`.* FROM 'a\\'b'@'%';\n-- end grants 'a\\'b'@'%'\n\n" +
		"-- begin default role 'a\\'b'@'%'\nSET DEFAULT ROLE r TO 'a\\'b'@'%';\n-- end default role 'a\\'b'@'%'\n\nFLUSH PRIVILEGES;\n-- End of dumping user accounts\n"
	d, err := mysqlshdump.Read(bytes.NewReader(buildTar(t, files)))
	testenv.ExpectNoError(t, err)
	accounts, err := d.Accounts()
	testenv.ExpectNoError(t, err)
	testenv.ExpectEqual(t, "accounts", []mysqlshdump.Account{{
		User: "a'b", Host: "%", Create: "CREATE USER IF NOT EXISTS 'a\\'b'@`%` IDENTIFIED WITH 'x' AS 'one;\\'two\n;''' COMMENT \";\"",
		Grants: []string{"GRANT USAGE ON *.* TO 'a\\'b'@'%'", "REVOKE SELECT ON `x;`.* FROM 'a\\'b'@'%'", "SET DEFAULT ROLE r TO 'a\\'b'@'%'"},
	}}, accounts)
}

// FuzzRead checks that no archive makes the program panic.
func FuzzRead(f *testing.F) {
	f.Add([]byte("CREATE USER 'a'@'%'"), "-- begin user 'a'@'%'\nCREATE USER 'a'@'%;\n-- end user 'a'@'%'\n", `{"version": "2.0.0"}`)
	f.Fuzz(func(t *testing.T, rows []byte, users, instance string) {
		files := smallDump(t, string(rows))
		files["@.users.sql"] = users
		if _, _, err := write(t, files); err != nil {
			if _, isFormat := errors.AsType[*mysqlshdump.FormatError](err); !isFormat {
				t.Errorf("expected an error of the format, found %v", err)
			}
		}
		d, err := mysqlshdump.Read(bytes.NewReader(buildTar(t, files)))
		testenv.ExpectNoError(t, err)
		_, _ = d.Accounts() // Any error is fine.
		files["@.json"] = instance
		_, _ = mysqlshdump.Read(bytes.NewReader(buildTar(t, files))) // Any error is fine.
	})
}
