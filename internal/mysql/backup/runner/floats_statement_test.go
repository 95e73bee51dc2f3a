// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"bytes"
	"database/sql"
	"io"
	"strings"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestStatementsOfMysqldumpEnd covers texts and names that contain the characters at which a statement or a row ends.
func TestStatementsOfMysqldumpEnd(t *testing.T) {
	for text, rows := range map[string]int{
		"\nLOCK TABLES `a;b``;(` WRITE;":                                          0,
		"\n/*!40000 ALTER TABLE `VALUES (` DISABLE KEYS */;":                      0,
		"\nINSERT INTO `t` VALUES (1);":                                           1,
		"\nINSERT INTO `t` VALUES (1,NULL),(-2e-10,0x00FF);":                      2,
		"\nINSERT INTO `V` (`V(`, `a) VALUES (`) VALUES (1,2),(3,4);":             2,
		"\nINSERT INTO `a\n;` (`b`) VALUES ('x;\\');('),('),(');":                 2,
		"\nINSERT INTO `t` VALUES ('\\\\'),('\\n;\\\"('),(_binary '\\0;('),('');": 4,
		"\nINSERT INTO `t` VALUES ('`;('),('V;''(');":                             2,
	} {
		from := bufio.NewReader(strings.NewReader(text + "\nrest"))
		found, err := readStatement(from, maxShortStatement)
		testenv.ExpectNoError(t, err)
		testenv.ExpectEqual(t, text+": the text", text, found.text)
		testenv.ExpectEqual(t, text+": the rows", rows, found.rows)
		rest, err := io.ReadAll(from)
		testenv.ExpectNoError(t, err)
		testenv.ExpectEqual(t, text+": the rest", "\nrest", string(rest))
	}
	if _, err := readStatement(bufio.NewReader(strings.NewReader("\nINSERT INTO `t` VALUES ('x;")), 0); err == nil {
		t.Error("expected an error for a statement without an end, found none")
	}
}

// TestValuesOfADump covers the form of values in an INSERT statement.
func TestValuesOfADump(t *testing.T) {
	for _, row := range []struct {
		kind  valueKind
		value sql.RawBytes
		want  string
	}{
		{floatValue, nil, "NULL"},
		{floatValue, sql.RawBytes("16777215"), "16777215"},
		{floatValue, sql.RawBytes("0.10000000149011612"), "0.100000001"},
		{floatValue, sql.RawBytes("3.4028234663852886e+38"), "3.40282347e+38"},
		{scaledValue, sql.RawBytes("0.10000000149011612"), "0.10000000149011612"},
		{floatValue, sql.RawBytes("-0"), "-0e0"},
		{numberValue, sql.RawBytes("-0"), "-0e0"},
		{textValue, sql.RawBytes("-0"), "'-0'"},
		{numberValue, sql.RawBytes("-7"), "-7"},
		{bytesValue, sql.RawBytes("\x00'"), "0x0027"},
		{bytesValue, sql.RawBytes(""), "''"},
		{textValue, sql.RawBytes(""), "''"},
		{textValue, sql.RawBytes("it's \\ \"\n\r\x00\x1a é"), `'it\'s \\ \"\n\r\0\Z é'`},
	} {
		var text bytes.Buffer
		w := &rowWriter{to: bufio.NewWriter(&text)}
		testenv.ExpectNoError(t, w.writeValue(row.kind, row.value))
		testenv.ExpectNoError(t, w.to.Flush())
		testenv.ExpectEqual(t, string(row.kind)+" "+string(row.value), row.want, text.String())
	}
}
