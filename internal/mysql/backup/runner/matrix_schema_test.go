// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
)

// schemaGenerator generates random statements. It keeps a rough model of the tables, so most statements succeed. MySQL
// may refuse the others, as it does with some statements of any application.
type schemaGenerator struct {
	*rand.Rand

	schemas []string
	tables  []*generatedTable
	views   []string
	others  []generatedObject
	users   []string
	serial  int
	// isAfterBackup is true once the backup exists.
	isAfterBackup bool
	// counts is the number of generated objects and statements by kind.
	counts map[string]int
}

// generatedTable is a table in the model.
type generatedTable struct {
	schema, name string
	columns      []generatedColumn
	// isPlain is true for a storage engine without transactions.
	isPlain bool
	// hasKey is true for a table with a primary key.
	hasKey bool
	// hasLabels is true for a table with an ENUM or SET column.
	hasLabels bool
}

// noteColumn records a column of a type.
func (t *generatedTable) noteColumn(kind string) {
	t.hasLabels = t.hasLabels || strings.HasPrefix(kind, "enum") || strings.HasPrefix(kind, "set")
}

func (t *generatedTable) quoted() string { return quotePair(t.schema, t.name) }

// generatedColumn is a column that an INSERT may list.
type generatedColumn struct {
	name  string
	value func(*schemaGenerator) string
}

// generatedObject is a routine, a trigger or an event. kind is the keyword of its DROP statement.
type generatedObject struct{ kind, quoted string }

// copyTables returns a copy of the current tables.
func (g *schemaGenerator) copyTables() []*generatedTable {
	var all []*generatedTable
	for _, t := range g.tables {
		all = append(all, &generatedTable{t.schema, t.name, slices.Clone(t.columns), t.isPlain, t.hasKey, t.hasLabels})
	}
	return all
}

func quotePair(schema, name string) string {
	return mysqlshdump.QuoteName(schema) + "." + mysqlshdump.QuoteName(name)
}

func newSchemaGenerator(seed, stream uint64) *schemaGenerator {
	return &schemaGenerator{Rand: rand.New(rand.NewPCG(seed, stream)), counts: map[string]int{}}
}

func pick[T any](g *schemaGenerator, all ...T) T { return all[g.IntN(len(all))] }

// chance returns true in one of n cases.
func (g *schemaGenerator) chance(n int) bool { return g.IntN(n) == 0 }

func (g *schemaGenerator) count(kind string) { g.counts[kind]++ }

// name returns a name that is unique in all schemas, and often unusual.
func (g *schemaGenerator) name(begin string) string {
	g.serial++
	plain := fmt.Sprintf("%s%d", begin, g.serial)
	if g.chance(2) {
		return plain
	}
	g.count("odd name")
	odd := pick(g, "a b", "`tick`", `"quote"`, "it's", "dot.ted", "semi;colon", "select", "-- dash", "/* x */", "*/", "100%", "_under_", `back\slash`, "slash/",
		"ÜberGröße", "таблица", "表", "$$", "#hash", "@at", "Upper", "tab\tname", "new\nline", "emp=ty", "(paren)", "%s", "日本`語", "?mark", strings.Repeat("x", 40))
	return odd + " " + plain
}

// charset is a character set with some of its collations, and texts in it.
type charset struct {
	name       string
	collations []string
	// raw are texts in the character set itself, as hexadecimal.
	raw []string
}

func listCharsets() []charset {
	return []charset{
		{"utf8mb4", []string{"utf8mb4_0900_ai_ci", "utf8mb4_bin", "utf8mb4_unicode_ci", "utf8mb4_ja_0900_as_cs", "utf8mb4_general_ci"}, []string{"f09f9880", "65cc81", "c3bc"}},
		{"utf8mb3", []string{"utf8mb3_general_ci", "utf8mb3_bin"}, []string{"e8a1a8", "efbfbd"}},
		{"latin1", []string{"latin1_swedish_ci", "latin1_german2_ci", "latin1_bin"}, []string{"e4f6fc", "80818d8f909d9f", "ff"}},
		{"latin2", []string{"latin2_general_ci"}, []string{"a1b1e6"}},
		{"cp1251", []string{"cp1251_general_ci"}, []string{"cff0e8"}},
		{"koi8r", []string{"koi8r_general_ci"}, []string{"c1c2d7"}},
		{"ascii", []string{"ascii_general_ci", "ascii_bin"}, []string{"00", "7f"}},
		{"ucs2", []string{"ucs2_general_ci"}, []string{"00e48868", "304230ab"}},
		{"utf16", []string{"utf16_unicode_ci"}, []string{"d83dde00", "0041"}},
		{"utf16le", []string{"utf16le_general_ci"}, []string{"3dd800de"}},
		{"utf32", []string{"utf32_bin"}, []string{"0001f600", "00000041"}},
		{"gbk", []string{"gbk_chinese_ci"}, []string{"b1ed", "c4e3"}},
		{"gb18030", []string{"gb18030_chinese_ci"}, []string{"94 39 fc 36", "b1ed", "8135f437"}},
		{"big5", []string{"big5_chinese_ci"}, []string{"aaed", "a55c", "f9d6"}},
		{"sjis", []string{"sjis_japanese_ci"}, []string{"955c", "815c", "83 5c"}},
		{"cp932", []string{"cp932_japanese_ci"}, []string{"955c", "8160", "fa5c", "8740"}},
		{"ujis", []string{"ujis_japanese_ci"}, []string{"c9bd", "a1c1"}},
		{"eucjpms", []string{"eucjpms_japanese_ci"}, []string{"c9bd", "a1c1", "ade2"}},
		{"euckr", []string{"euckr_korean_ci"}, []string{"c7a5"}},
		{"tis620", []string{"tis620_thai_ci"}, []string{"a1a2"}},
		{"cp850", []string{"cp850_general_ci"}, []string{"81"}},
		{"cp866", []string{"cp866_bin"}, []string{"80"}},
		{"hebrew", []string{"hebrew_general_ci"}, []string{"e0"}},
		{"greek", []string{"greek_general_ci"}, []string{"e1"}},
		{"armscii8", []string{"armscii8_bin"}, []string{"b2"}},
		{"geostd8", []string{"geostd8_bin"}, []string{"c0"}},
		{"macroman", []string{"macroman_bin"}, []string{"8a"}},
		{"keybcs2", []string{"keybcs2_bin"}, []string{"81"}},
		{"dec8", []string{"dec8_bin"}, []string{"e4"}},
		{"hp8", []string{"hp8_bin"}, []string{"cc"}},
		{"swe7", []string{"swe7_bin"}, []string{"41"}},
		{"cp1250", []string{"cp1250_general_ci"}, []string{"e4"}},
		{"cp1256", []string{"cp1256_general_ci"}, []string{"c7"}},
		{"cp1257", []string{"cp1257_lithuanian_ci"}, []string{"e4"}},
		{"latin5", []string{"latin5_turkish_ci"}, []string{"fd"}},
		{"latin7", []string{"latin7_general_cs"}, []string{"e4"}},
		{"macce", []string{"macce_bin"}, []string{"8a"}},
		{"cp852", []string{"cp852_bin"}, []string{"84"}},
		{"gb2312", []string{"gb2312_bin"}, []string{"b1ed"}},
	}
}

func quoteText(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''", "\x00", `\0`).Replace(text) + "'"
}

// text returns a text literal whose characters exist in most character sets.
func (g *schemaGenerator) text() string {
	return quoteText(pick(g, "", "a", "plain text", "it's", `back\slash`, "line\nbreak", "cr\r\nlf", "nul\x00byte", "\x1a", "tab\t", `"`, "%_", "-- comment", "/* x */ ;",
		"end;\n", "NULL", "0x41", strings.Repeat("long ", 50), "trailing  ", "-- Current Database: `x`", "DELIMITER ;;", `\`, `\N`, "'"))
}

func (g *schemaGenerator) unicode() string {
	return "_utf8mb4" + quoteText(pick(g, "é", "ÄÖÜß", "Ωμέγα", "привет", "日本語テキスト", "😀🎉", "e\u0301", "ﷺ", "\u200b", "ｶﾅ", "～−￠"))
}

// json returns a JSON document. A dump writes documents as text, in which SQL values such as dates become strings.
// Documents with SQL values are therefore generated only after the backup.
func (g *schemaGenerator) json() string {
	all := []string{`'{"a": [1, 2.5, null, true, "x"], "é": {"b": 1e100}}'`, "'[]'", "'null'", `'"text"'`, `'{"": "\\u0000 \\\\ \\"", "n": -9223372036854775808}'`, "json_array(repeat('y', 3000))"}
	if g.isAfterBackup {
		all = append(all, "cast(date'2026-11-29' as json)", "json_object('d', cast(1.10 as decimal(10,5)), 't', time'10:00:00.5')", `json_object('b', x'00ff', 'n', -0.0, 'dt', timestamp'2026-11-29 00:00:00.123')`)
	}
	return pick(g, all...)
}

// charsetValue returns literals of a character set.
func charsetValue(c charset) func(*schemaGenerator) string {
	return func(g *schemaGenerator) string {
		switch g.IntN(4) {
		case 0:
			return g.unicode()
		case 1:
			return "_" + c.name + " 0x" + strings.ReplaceAll(pick(g, c.raw...), " ", "")
		default:
			return g.text()
		}
	}
}

func literals(all ...string) func(*schemaGenerator) string {
	return func(g *schemaGenerator) string { return pick(g, all...) }
}

func bytesUpTo(most int) func(*schemaGenerator) string {
	return func(g *schemaGenerator) string {
		n := g.IntN(min(most, 300) + 1)
		if most > 1<<20 && g.chance(40) {
			g.count("large row")
			return fmt.Sprintf("repeat(0x00ff1a0d0a5c27%02x, %d)", g.IntN(256), 50_000+g.IntN(200_000))
		}
		text := make([]byte, n)
		for i := range text {
			text[i] = byte(g.IntN(256))
		}
		return fmt.Sprintf("x'%x'", text)
	}
}

// columnType returns a random type, with values for it.
func (g *schemaGenerator) columnType() (text string, value func(*schemaGenerator) string, isIndexable bool) {
	geometry := func(kind string) (string, func(*schemaGenerator) string, bool) {
		return kind, literals("st_geomfromtext('POINT(1 2)')", "st_geomfromtext('LINESTRING(0 0, 1.5 1.5)')", "st_geomfromtext('POLYGON((0 0,1 0,1 1,0 0))')",
			"st_geomfromtext('MULTIPOINT(1 1,2 2)')", "st_geomfromtext('GEOMETRYCOLLECTION(POINT(1 1))')", "st_geomfromtext('POINT(10 20)', 4326)"), false
	}
	switch g.IntN(26) {
	case 0:
		return pick(g, "tinyint", "smallint", "mediumint", "int", "bigint", "int(8) zerofill", "bool"), literals("0", "1", "-1", "127", "99", "-128"), true
	case 1:
		return pick(g, "tinyint unsigned", "int unsigned", "bigint unsigned"), literals("0", "255", "4294967295", "18446744073709551615"), true
	case 2:
		return pick(g, "decimal(65,30)", "decimal(10,0)", "decimal(5,5) unsigned", "numeric(20,2)"), literals("0", "0.12345", "-1.5", "12345678901234567890.123456789", "9999999999"), true
	case 3:
		return "float", literals("0", "1.5", "3.14159", "2e-38", "3e38", "-123456", "0.1", "16777217", "0.12345679"), true
	case 4:
		return pick(g, "double", "double precision", "real"), literals("0", "0.1", "1e308", "2.2250738585072014e-308", "3.141592653589793", "-1e-300", "123456789.123456789"), true
	case 5:
		return pick(g, "float(7,3)", "double(15,5)", "double unsigned"), literals("0", "1.234", "9999.999", "0.001"), true
	case 6:
		return pick(g, "bit(1)", "bit(8)", "bit(64)", "bit(13)"), literals("b'0'", "b'1'", "b'10101'", "0xff", "b'1111111111111111111111111111111111111111111111111111111111111111'"), true
	case 7:
		return "date", literals("'2026-11-29'", "'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'2026-00-00'", "'2026-02-31'"), true
	case 8:
		return pick(g, "time", "time(6)", "time(1)"), literals("'00:00:00'", "'-838:59:59'", "'12:34:56.789012'", "'838:59:58.999999'"), true
	case 9:
		return pick(g, "datetime", "datetime(6)", "datetime(3)"), literals("'2026-11-29 01:02:03.456789'", "'0000-00-00 00:00:00'", "'9999-12-31 23:59:59'", "'2026-02-30 12:00:00'", "now(6)"), true
	case 10:
		return pick(g, "timestamp null", "timestamp(6) null", "timestamp null default current_timestamp on update current_timestamp"),
			literals("'2026-03-29 02:30:00'", "'1970-01-02 00:00:01'", "'2038-01-18 03:14:07'", "'0000-00-00 00:00:00'", "now()", "'2026-10-25 02:30:00.5'"), true
	case 11:
		return "year", literals("0", "1901", "2155", "2026"), true
	case 12:
		return pick(g, "binary(16)", "varbinary(100)", "binary(0)", "binary(3)"), bytesUpTo(16), false
	case 13:
		return pick(g, "tinyblob", "blob"), bytesUpTo(255), false
	case 14:
		return pick(g, "mediumblob", "longblob"), bytesUpTo(1 << 24), false
	case 15:
		return pick(g, "enum('a','b','it''s','é')", "enum('x')"), literals("'a'", "1", "2", "''", "'x'", "'zzz'"), true
	case 16:
		return pick(g, "set('a','b','c','it''s')", "set('1','2')"), literals("'a,b'", "''", "3", "'c'", "'1,2'"), true
	case 17:
		return "json", (*schemaGenerator).json, false
	case 18:
		return geometry(pick(g, "geometry", "geometry", "geometrycollection"))
	case 19:
		return pick(g, "point", "point srid 0"), literals("point(1.25, -2)", "st_geomfromtext('POINT(0.1 0.2)')"), false
	case 20:
		return "point srid 4326", literals("st_geomfromtext('POINT(52.5 13.4)', 4326)"), false
	case 21:
		return pick(g, "vector(3)", "vector"), literals("to_vector('[1.5, 2.25, -3]')", "to_vector('[0.1, 0.2, 0.3]')"), false
	case 22:
		return pick(g, "char(0)", "char(10)", "char(30)"), (*schemaGenerator).text, true
	default:
		c := pick(g, listCharsets()...)
		g.count("character set " + c.name)
		kind := pick(g, "varchar(100)", "char(20)", "text", "mediumtext", "varchar(2000)", "tinytext", "longtext")
		return kind + " character set " + c.name + pick(g, "", " collate "+pick(g, c.collations...)), charsetValue(c), kind == "varchar(100)" || kind == "char(20)"
	}
}

// createTable returns a CREATE TABLE statement.
func (g *schemaGenerator) createTable(schema string) string {
	t := &generatedTable{schema: schema, name: g.name("t")}
	var parts []string
	hasID := !g.chance(6)
	t.hasKey = hasID
	kindOfID := pick(g, "int", "bigint unsigned", "int", "smallint")
	if hasID {
		parts = append(parts, "id "+kindOfID+" not null auto_increment"+pick(g, "", " comment 'it''s the key'", "", " invisible"))
	}
	var indexable []string
	for range 1 + g.IntN(6) {
		kind, value, isIndexable := g.columnType()
		g.count("column " + strings.Fields(kind)[0])
		t.noteColumn(kind)
		name := g.name("c")
		line := mysqlshdump.QuoteName(name) + " " + kind + g.columnOptions(kind)
		parts = append(parts, line)
		t.columns = append(t.columns, generatedColumn{name, value})
		if isIndexable {
			indexable = append(indexable, name)
		}
	}
	if g.chance(3) {
		// MySQL stores a quote in an expression with a backslash, and reads it in the SQL mode of the session that
		// opens the table.
		g.count("generated column")
		parts = append(parts, mysqlshdump.QuoteName(g.name("g"))+" "+pick(g,
			"int generated always as (1 + 1) virtual", "varchar(50) generated always as (concat('a', 'é', 'x;y')) stored", "json generated always as (json_array(1)) virtual",
			"int as (length('x y')) stored invisible", "varchar(20) character set latin1 as (_utf8mb4'ü') virtual"))
	}
	if hasID {
		parts = append(parts, "primary key (id)")
	}
	parts = append(parts, g.indexes(t, indexable, hasID)...)
	options := g.tableOptions(t)
	if hasID && g.chance(4) && !t.isPlain {
		options += g.partitions()
		parts = slices.DeleteFunc(parts, func(p string) bool {
			return strings.HasPrefix(p, "unique") || strings.HasPrefix(p, "fulltext") || strings.HasPrefix(p, "spatial") || strings.HasPrefix(p, "foreign")
		})
	}
	g.tables = append(g.tables, t)
	g.count("table")
	return fmt.Sprintf("create table %s (%s)%s", t.quoted(), strings.Join(parts, ", "), options)
}

func (g *schemaGenerator) columnOptions(kind string) string {
	text := ""
	if g.chance(6) {
		g.count("invisible column")
		text += " invisible"
	}
	if g.chance(8) {
		text += " comment " + g.text()
	}
	if strings.HasPrefix(kind, "varchar") && g.chance(3) {
		g.count("default")
		text += " default " + pick(g, "'it''s'", "''", "'a\\\\b'", "(concat('x', uuid_short() * 0))", "null")
	}
	if strings.HasPrefix(kind, "int") && g.chance(3) {
		g.count("default")
		text += " default " + pick(g, "7", "(1 + 2)")
	}
	return text
}

func (g *schemaGenerator) indexes(t *generatedTable, indexable []string, hasID bool) []string {
	var parts []string
	for _, name := range indexable {
		quoted := mysqlshdump.QuoteName(name)
		if !g.chance(3) {
			continue
		}
		g.count("index")
		parts = append(parts, pick(g, "key ("+quoted+")", "key "+mysqlshdump.QuoteName(g.name("k"))+" ("+quoted+" desc) comment 'it''s'", "unique key ("+quoted+")", "key ("+quoted+") invisible",
			"key "+mysqlshdump.QuoteName(g.name("f"))+" ((length("+quoted+") + 1))", "key ((hex("+quoted+")) desc)"))
	}
	for i, c := range t.columns {
		quoted := mysqlshdump.QuoteName(c.name)
		if i == 0 && g.chance(10) {
			g.count("check constraint")
			parts = append(parts, "constraint "+mysqlshdump.QuoteName(g.name("check"))+" check ("+quoted+" is null or "+quoted+" is not null)"+pick(g, "", " not enforced"))
		}
	}
	if g.chance(5) {
		g.count("full-text index")
		name := g.name("ft")
		parts = append(parts, mysqlshdump.QuoteName(name)+" text character set utf8mb4", "fulltext key ("+mysqlshdump.QuoteName(name)+")"+pick(g, "", " with parser ngram"))
		t.columns = append(t.columns, generatedColumn{name, literals("'some words here'", "'日本語の文章'", "null", "''")})
	}
	// Without a primary key, MySQL searches the rows of a replicated DELETE by the spatial index, and does not find
	// them.
	if hasID && g.chance(6) {
		g.count("spatial index")
		name := g.name("sp")
		parts = append(parts, mysqlshdump.QuoteName(name)+" point not null srid 4326", "spatial key ("+mysqlshdump.QuoteName(name)+")")
		t.columns = append(t.columns, generatedColumn{name, literals("st_geomfromtext('POINT(1 1)', 4326)", "st_geomfromtext('POINT(-45 170.5)', 4326)")})
	}
	if g.chance(6) {
		g.count("multi-valued index")
		name := g.name("mv")
		quoted := mysqlshdump.QuoteName(name)
		parts = append(parts, quoted+" json", "key ((cast("+quoted+"->'$.tags' as unsigned array)))")
		t.columns = append(t.columns, generatedColumn{name, literals(`'{"tags": [1, 2, 3]}'`, `'{"tags": []}'`, `'{"other": 1}'`, "null")})
	}
	if hasID && g.chance(4) && len(g.tables) > 0 {
		g.count("foreign key")
		name, parent := g.name("fk"), pick(g, g.tables...)
		quoted := mysqlshdump.QuoteName(name)
		parts = append(parts, quoted+" "+pick(g, "int", "bigint unsigned"), "foreign key ("+quoted+") references "+parent.quoted()+" (id)"+pick(g, "", " on delete cascade", " on delete set null", " on update cascade"))
		t.columns = append(t.columns, generatedColumn{name, literals("null", "1", "2", "3")})
	}
	return parts
}

func (g *schemaGenerator) tableOptions(t *generatedTable) string {
	text := ""
	if g.chance(10) {
		t.isPlain = true
		engine := pick(g, "MyISAM", "MyISAM", "MEMORY", "BLACKHOLE")
		g.count("engine " + engine)
		return " engine = " + engine
	}
	if g.chance(3) {
		c := pick(g, listCharsets()...)
		text += " character set " + c.name + " collate " + pick(g, c.collations...)
	}
	if g.chance(4) {
		text += " row_format = " + pick(g, "compact", "redundant", "dynamic", "compressed", "fixed")
	}
	if g.chance(5) {
		text += " comment " + g.text()
	}
	if g.chance(6) {
		text += pick(g, " stats_persistent = 0", " stats_auto_recalc = 0 stats_sample_pages = 3", " auto_increment = 1000", " min_rows = 1 max_rows = 1000000", " avg_row_length = 100", " key_block_size = 4",
			" compression = 'zlib'", " autoextend_size = 4M", ` engine_attribute = '{"a": 1}'`, " checksum = 1", " pack_keys = 1", " insert_method = no")
	}
	return text
}

func (g *schemaGenerator) partitions() string {
	g.count("partitions")
	return pick(g,
		" partition by hash (id) partitions 3", " partition by linear hash (id) partitions 5", " partition by key (id) partitions 2", " partition by key algorithm = 1 () partitions 4",
		" partition by range (id) (partition p0 values less than (10) comment 'it''s', partition `p 1` values less than (1000), partition pm values less than maxvalue)",
		" partition by range columns (id) (partition p0 values less than (5), partition pm values less than (maxvalue))",
		" partition by list (id % 3) (partition a values in (0), partition b values in (1, 2, null))",
		" partition by range (id) subpartition by hash (id) subpartitions 2 (partition p0 values less than (100), partition pm values less than maxvalue)",
		" partition by range (id) subpartition by key (id) (partition p0 values less than (50) (subpartition s0, subpartition s1), partition pm values less than maxvalue (subpartition s2, subpartition s3))")
}

// insert returns an INSERT with some rows.
func (g *schemaGenerator) insert(t *generatedTable) string {
	var names, rows []string
	for _, c := range t.columns {
		names = append(names, mysqlshdump.QuoteName(c.name))
	}
	for range 1 + g.IntN(4) {
		var values []string
		for _, c := range t.columns {
			value := c.value(g)
			if g.chance(8) {
				value = "null"
			}
			values = append(values, value)
		}
		rows = append(rows, "("+strings.Join(values, ", ")+")")
	}
	g.count("insert")
	verb := pick(g, "insert", "insert", "insert ignore", "replace")
	if verb == "replace" && !t.hasKey {
		// If one REPLACE changes the same row twice, replicas of MySQL 9.7.4 may differ. docs/backup.md has the details.
		rows = rows[:1]
	}
	return verb + " into " + t.quoted() + " (" + strings.Join(names, ", ") + ") values " + strings.Join(rows, ", ")
}

// change returns a statement that changes rows.
func (g *schemaGenerator) change(t *generatedTable) string {
	column := pick(g, t.columns...)
	quoted := mysqlshdump.QuoteName(column.name)
	switch g.IntN(7) {
	case 0:
		g.count("update")
		return "update " + t.quoted() + " set " + quoted + " = " + column.value(g) + pick(g, "", " limit 2", " where "+quoted+" is not null")
	case 1:
		g.count("delete")
		return "delete from " + t.quoted() + pick(g, " limit 1", " where "+quoted+" is null", " limit 3")
	case 2:
		g.count("insert from select")
		var names []string
		for _, c := range t.columns {
			names = append(names, mysqlshdump.QuoteName(c.name))
		}
		list := strings.Join(names, ", ")
		return "insert ignore into " + t.quoted() + " (" + list + ") select " + list + " from " + t.quoted() + fmt.Sprintf(" limit %d", pick(g, 5, 50, 2000))
	default:
		return g.insert(t)
	}
}
