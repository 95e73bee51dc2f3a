// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
)

// createSchema returns the statement that creates a schema.
func (g *schemaGenerator) createSchema() string {
	name := strings.ReplaceAll(g.name("s"), "\n", " ") // A schema whose name has a line break cannot be restored alone.
	g.schemas = append(g.schemas, name)
	g.count("schema")
	c := pick(g, listCharsets()...)
	return "create database " + mysqlshdump.QuoteName(name) + pick(g, "", " character set "+c.name+" collate "+pick(g, c.collations...))
}

// sqlMode returns random SQL modes. With HIGH_NOT_PRECEDENCE, MySQL does not accept its own definitions of events.
func (g *schemaGenerator) sqlMode() string {
	all := []string{
		"ALLOW_INVALID_DATES", "ANSI_QUOTES", "ERROR_FOR_DIVISION_BY_ZERO", "IGNORE_SPACE", "NO_AUTO_VALUE_ON_ZERO", "NO_BACKSLASH_ESCAPES",
		"NO_ENGINE_SUBSTITUTION", "NO_UNSIGNED_SUBTRACTION", "NO_ZERO_DATE", "NO_ZERO_IN_DATE", "ONLY_FULL_GROUP_BY", "PAD_CHAR_TO_FULL_LENGTH", "PIPES_AS_CONCAT",
		"REAL_AS_FLOAT", "STRICT_ALL_TABLES", "STRICT_TRANS_TABLES", "TIME_TRUNCATE_FRACTIONAL",
	}
	var modes []string
	for _, mode := range all {
		if g.chance(5) {
			g.count("mode " + mode)
			modes = append(modes, mode)
		}
	}
	return strings.Join(modes, ",")
}

// sessionSettings returns the statements at the beginning of a session. A session that copies tables accepts invalid
// dates, because a replay does not copy them, and would keep the dates that the source has changed.
func (g *schemaGenerator) sessionSettings() []string {
	all := []string{"set autocommit = 1, completion_type = 0, lock_wait_timeout = 2, innodb_lock_wait_timeout = 2, max_execution_time = 0, sql_safe_updates = 0, sql_select_limit = default, sql_big_selects = 1, old_alter_table = 0"}
	if g.chance(2) {
		all = append(all, "set sql_mode = '"+g.sqlMode()+"'")
	} else {
		all = append(all, "set sql_mode = 'ALLOW_INVALID_DATES'")
	}
	for _, setting := range []string{
		"sql_generate_invisible_primary_key = on", "foreign_key_checks = 0", "unique_checks = 0", "binlog_row_image = minimal", "binlog_row_image = noblob", "binlog_row_value_options = partial_json",
		"binlog_transaction_compression = on", "binlog_transaction_compression = off", "binlog_rows_query_log_events = on", "binlog_format = statement", "binlog_format = mixed",
		"auto_increment_increment = 7, auto_increment_offset = 3", "time_zone = '+09:30'", "time_zone = '-12:00'", "timestamp = 1774748400.25", "collation_connection = latin1_german1_ci",
		"names utf8mb4 collate utf8mb4_bin", "default_collation_for_utf8mb4 = utf8mb4_general_ci",
		"explicit_defaults_for_timestamp = off", "innodb_strict_mode = off", "lc_time_names = 'de_DE'", "restrict_fk_on_non_standard_key = off", "gtid_next = 'automatic:tag'",
		"transaction_isolation = 'serializable'", "character_set_database = latin1", "sql_quote_show_create = 0", "print_identified_with_as_hex = 0",
		"default_week_format = 3, div_precision_increment = 0", "insert_id = 100", "big_tables = 1", "old_alter_table = 1, sql_mode = 'ALLOW_INVALID_DATES'", "updatable_views_with_limit = 0", "show_create_table_verbosity = 1",
	} {
		if g.chance(14) {
			g.count("session " + strings.Fields(setting)[0])
			all = append(all, "set "+setting)
		}
	}
	if g.chance(2) && len(g.schemas) > 0 {
		g.count("default schema")
		all = append(all, "use "+mysqlshdump.QuoteName(pick(g, g.schemas...)))
	}
	return all
}

// createObject returns a statement that creates a view, a routine, a trigger, an event or an account.
func (g *schemaGenerator) createObject() string {
	schema := pick(g, g.schemas...)
	t := pick(g, g.tables...)
	definer := pick(g, "", "", "definer = gone@nowhere ", "definer = 'moco-admin'@'%' ")
	quoted := func(begin string) string { return quotePair(schema, g.name(begin)) }
	add := func(kind, name string) string {
		g.count(kind)
		g.others = append(g.others, generatedObject{kind, name})
		return name
	}
	switch g.IntN(9) {
	case 0, 1:
		name := quoted("v")
		g.views = append(g.views, name)
		g.count("view")
		return "create " + pick(g, "", "or replace ", "algorithm = merge ", "algorithm = temptable ") + definer + pick(g, "", "sql security invoker ") + "view " + name + " as " + g.query(name)
	case 2:
		return "create " + definer + "procedure " + add("procedure", quoted("p")) + "(in `a b` varchar(20) character set latin1, out b json, inout c decimal(10,2)) " +
			pick(g, "", "comment 'it''s' ", "sql security invoker ", "reads sql data ") + pick(g, "select 1", "begin declare x text default 'é;;'; select x, ';', \"y\"; end", "begin\r\n  -- comment\r\n  set @x = 'a\\\\b\r\nc';\r\nend",
			"insert into "+t.quoted()+" () values ()", "begin # a comment\n select 1; end")
	case 3:
		return "create " + definer + "function " + add("function", quoted("f")) + "(a int) returns " + pick(g, "int", "varchar(30) character set latin1", "json", "decimal(10,3)", "text character set utf8mb4 collate utf8mb4_bin") +
			" deterministic no sql " + pick(g, "return a", "return 1 + 1", "return '日本'", "return 'back\\\\slash\\''", "begin return (select 5); end")
	case 4, 5:
		return "create " + definer + "trigger " + add("trigger", quotePair(t.schema, g.name("tr"))) + " " + pick(g, "before", "after") + " " + pick(g, "insert", "update", "delete") + " on " + t.quoted() +
			" for each row " + pick(g, "set @x = 'é'", "begin set @a = 1; set @b = 'a\r\nb;;'; end", "set @y = concat('a', \"b\")", "insert into "+pick(g, g.tables...).quoted()+" () values ()", "set @z = 'back\\\\slash'")
	case 6:
		return "create " + definer + "event " + add("event", quoted("e")) + " on schedule " + pick(g, "every 1 day starts '2031-01-01 03:00:00'", "at '2032-02-29 10:00:00'",
			"every '1:30' hour_minute starts '2030-06-01 00:00:00' ends '2035-01-01 00:00:00'", "every 3 month starts '2033-01-31 00:00:00'") +
			pick(g, "", " on completion preserve", " on completion not preserve") + pick(g, "", " disable", " enable") + pick(g, "", " comment 'it''s'") + " do " + pick(g, "select 1", "begin select 'é;'; end", "set @x = \"y\"", "delete from "+t.quoted())
	default:
		return g.changeAccounts()
	}
}

// query returns the query of a view. If the binary logs contain a view on another schema, a restore of one schema
// fails.
func (g *schemaGenerator) query(view string) string {
	tables, views := g.tables, slices.DeleteFunc(slices.Clone(g.views), func(v string) bool { return v == view })
	if g.isAfterBackup {
		views = nil
		tables = slices.DeleteFunc(slices.Clone(tables), func(t *generatedTable) bool { return !strings.HasPrefix(view, mysqlshdump.QuoteName(t.schema)+".") })
	}
	if len(tables) == 0 {
		return "select 'é' as a, _latin1 0xe4 as b, \"x\" as c, 'back\\\\slash' as d"
	}
	t, other := pick(g, tables...), pick(g, tables...)
	column := mysqlshdump.QuoteName(pick(g, t.columns...).name)
	views = append(views, t.quoted())
	return pick(g, "select "+column+" from "+t.quoted(), "select "+column+" as `odd ``alias` from "+t.quoted()+" where "+column+" is not null with check option", "select * from "+t.quoted(),
		"select count(*) as n from "+t.quoted(), "select 'é' as a, _latin1 0xe4 as b, \"x\" as c, 'back\\\\slash' as d", "select 1 as one union all select 2", "select a.* from "+t.quoted()+" a, "+other.quoted()+" b limit 5",
		"with recursive r as (select 1 as n union all select n + 1 from r where n < 3) select n from r", "select * from "+pick(g, views...), "select row_number() over (order by "+column+") as r from "+t.quoted(),
		"table "+t.quoted())
}

func (g *schemaGenerator) changeAccounts() string {
	g.count("account statement")
	if len(g.users) < 2 || g.chance(3) {
		g.serial++
		name := fmt.Sprintf("'%s%d'@'%s'", pick(g, "user", "Üser", "odd name ", "it''s", "b`tick"), g.serial, pick(g, "%", "localhost", "10.%", "192.168.0.0/255.255.0.0", "::1"))
		g.users = append(g.users, name)
		if g.chance(4) {
			return "create role " + name
		}
		return "create user " + name + pick(g, "", " identified by 'secret-it''s\\\\'", " identified by 'secret-x' require ssl", " account lock", " password expire interval 90 day",
			" with max_queries_per_hour 10 max_user_connections 3", ` attribute '{"é": "it''s"}'`, " comment 'it''s'", " failed_login_attempts 3 password_lock_time 2", " require subject '/CN=x' and issuer '/CN=y'", " password history 5 password reuse interval 365 day password require current optional")
	}
	user, t := pick(g, g.users...), pick(g, g.tables...)
	column := mysqlshdump.QuoteName(pick(g, t.columns...).name)
	return pick(g, "grant select, insert on "+t.quoted()+" to "+user, "grant all on "+mysqlshdump.QuoteName(t.schema)+".* to "+user+" with grant option", "grant select ("+column+"), update ("+column+") on "+t.quoted()+" to "+user,
		"grant "+pick(g, g.users...)+" to "+user+pick(g, "", " with admin option"), "grant process, backup_admin on *.* to "+user, "revoke select on "+t.quoted()+" from "+user, "alter user "+user+" account lock",
		"alter user "+user+" identified by 'secret-new'", "alter user "+user+" identified by 'secret-two' retain current password", "set default role all to "+user, "grant select on *.* to "+user, "revoke insert on "+mysqlshdump.QuoteName(t.schema)+".* from "+user,
		"drop user "+user, "rename user "+user+" to 'renamed"+fmt.Sprint(g.serial)+"'@'%'")
}

// alter returns a statement that changes a definition.
func (g *schemaGenerator) alter() string {
	t := pick(g, g.tables...)
	column := pick(g, t.columns...)
	quoted, table := mysqlshdump.QuoteName(column.name), t.quoted()
	kind, value, _ := g.columnType()
	fresh := g.name("n")
	switch g.IntN(24) {
	case 0, 1:
		t.columns = append(t.columns, generatedColumn{fresh, value})
		t.noteColumn(kind)
		return g.counted("add column", "alter table "+table+" add column "+mysqlshdump.QuoteName(fresh)+" "+kind+pick(g, "", " first", " after "+quoted, " invisible"))
	case 2:
		if len(t.columns) > 1 {
			t.columns = slices.DeleteFunc(t.columns, func(c generatedColumn) bool { return c.name == column.name })
		}
		return g.counted("drop column", "alter table "+table+" drop column "+quoted+pick(g, "", ", algorithm = copy", ", algorithm = instant"))
	case 3:
		if !g.isAfterBackup && strings.Contains(kind, "character set") {
			return g.alter() // A dump has question marks for bytes that are no characters, such as those of a former POINT.
		}
		for i := range t.columns {
			if t.columns[i].name == column.name {
				t.columns[i].value = value
			}
		}
		t.noteColumn(kind)
		return g.counted("modify column", "alter table "+table+" modify column "+quoted+" "+kind)
	case 4:
		for i := range t.columns {
			if t.columns[i].name == column.name {
				t.columns[i].name = fresh
			}
		}
		return g.counted("rename column", "alter table "+table+" rename column "+quoted+" to "+mysqlshdump.QuoteName(fresh))
	case 5:
		return g.counted("add index", "alter table "+table+" add "+pick(g, "index", "unique index")+" "+mysqlshdump.QuoteName(fresh)+" ((hex("+quoted+")))"+pick(g, "", " invisible"))
	case 6:
		if t.hasLabels {
			return g.alter() // MySQL 9.7.4 converts labels from ucs2 incorrectly.
		}
		c := pick(g, listCharsets()...)
		return g.counted("convert", "alter table "+table+" convert to character set "+c.name)
	case 7:
		return g.counted("table option", "alter table "+table+" "+pick(g, "comment 'it''s'", "row_format = compact", "row_format = dynamic", "engine = innodb", "auto_increment = 5000", "force", "stats_persistent = 1", "order by "+quoted))
	case 8:
		name := t.quoted()
		if g.chance(4) {
			t.schema = pick(g, g.schemas...)
			g.count("rename to another schema")
		}
		t.name = fresh
		return g.counted("rename table", pick(g, "rename table "+name+" to "+t.quoted(), "alter table "+name+" rename to "+t.quoted())+pick(g, "", " /* a comment */"))
	case 9:
		copied := *t
		copied.name, copied.columns = fresh, slices.Clone(t.columns)
		if g.chance(4) {
			copied.schema = pick(g, g.schemas...)
		}
		g.tables = append(g.tables, &copied)
		return g.counted("create like", "create table "+copied.quoted()+" like "+table)
	case 10:
		return g.counted("create as select", "create table "+quotePair(pick(g, g.schemas...), fresh)+pick(g, "", " (extra int auto_increment primary key)")+" as select "+quoted+" from "+table)
	case 11:
		return g.counted("truncate", pick(g, "truncate table ", "truncate ")+table)
	case 12:
		if len(g.tables) < 4 {
			return g.insert(t)
		}
		g.tables = slices.DeleteFunc(g.tables, func(o *generatedTable) bool { return o == t })
		if g.chance(3) {
			other := pick(g, g.tables...)
			if len(g.tables) > 3 {
				g.tables = slices.DeleteFunc(g.tables, func(o *generatedTable) bool { return o == other })
				return g.counted("drop two tables", "drop table if exists "+table+", "+other.quoted())
			}
		}
		return g.counted("drop table", "drop table "+table)
	case 13:
		return g.counted("partition change", "alter table "+table+" "+pick(g, "add partition partitions 2", "coalesce partition 1", "truncate partition p0", "drop partition p0", "rebuild partition all", "remove partitioning",
			"reorganize partition pm into (partition px values less than (5000), partition pm values less than maxvalue)", "partition by key (id) partitions 3", "analyze partition all"))
	case 14:
		if len(g.views) == 0 {
			return g.createObject()
		}
		name := pick(g, g.views...)
		return g.counted("view change", pick(g, "drop view "+name, "create or replace view "+name+" as "+g.query(name), "alter view "+name+" as "+g.query(name)))
	case 15:
		if len(g.others) == 0 {
			return g.createObject()
		}
		o := pick(g, g.others...)
		if o.kind == "event" && g.chance(2) {
			return g.counted("alter event", "alter event "+o.quoted+pick(g, " disable", " enable", " comment 'changed'", " on schedule every 2 week starts '2031-05-05 00:00:00'", " do select 2"))
		}
		return g.counted("drop "+o.kind, "drop "+o.kind+" "+o.quoted)
	case 16:
		c := pick(g, listCharsets()...)
		return g.counted("alter database", "alter database "+mysqlshdump.QuoteName(pick(g, g.schemas...))+" character set "+c.name)
	case 17:
		return g.counted("maintenance", pick(g, "analyze table ", "optimize table ", "check table ", "analyze no_write_to_binlog table ")+table)
	case 18:
		return g.counted("flush", pick(g, "flush tables", "flush binary logs", "flush privileges", "flush status"))
	case 19:
		return g.counted("foreign key change", "alter table "+table+" add column "+mysqlshdump.QuoteName(fresh)+" int, add foreign key ("+mysqlshdump.QuoteName(fresh)+") references "+pick(g, g.tables...).quoted()+" (id) on delete cascade")
	case 20:
		return g.counted("swap", "rename table "+table+" to "+quotePair(t.schema, "swap"+fresh)+", "+quotePair(t.schema, "swap"+fresh)+" to "+table)
	case 21:
		return g.counted("column default", "alter table "+table+" alter column "+quoted+pick(g, " set default null", " set invisible", " set visible", " set default 'x'"))
	default:
		return g.createObject()
	}
}

func (g *schemaGenerator) counted(kind, statement string) string {
	g.count(kind)
	return statement
}

// session returns the statements of one session.
func (g *schemaGenerator) session() []string {
	all := g.sessionSettings()
	for range 1 + g.IntN(5) {
		t := pick(g, g.tables...)
		switch g.IntN(10) {
		case 0, 1:
			g.count("transaction")
			all = append(all, pick(g, "begin", "start transaction", "start transaction with consistent snapshot"))
			for range 1 + g.IntN(5) {
				all = append(all, g.change(pick(g, g.tables...)))
			}
			if g.chance(3) {
				all = append(all, "savepoint `s p`", g.change(t), pick(g, "rollback to `s p`", "release savepoint `s p`"), g.change(t))
			}
			all = append(all, pick(g, "commit", "commit", "commit", "rollback"))
		case 2:
			g.count("XA transaction")
			g.serial++
			name := fmt.Sprintf("'x%d'%s", g.serial, pick(g, "", ",'branch'", ",x'00ff',7"))
			all = append(all, "xa start "+name, g.change(t), g.change(pick(g, g.tables...)), "xa end "+name)
			all = append(all, pick(g, []string{"xa commit " + name + " one phase"}, []string{"xa prepare " + name, "xa commit " + name}, []string{"xa prepare " + name, "xa rollback " + name}, []string{"xa rollback " + name})...)
		case 3, 4, 5:
			all = append(all, g.alter())
		case 6:
			if g.chance(4) {
				g.count("temporary table")
				all = append(all, "create temporary table if not exists temporary_one (id int)", "insert into temporary_one values (1)", "drop temporary table temporary_one")
			}
			all = append(all, g.change(t))
		case 7:
			if g.chance(3) {
				all = append(all, g.createTable(pick(g, g.schemas...)))
			}
			all = append(all, g.change(pick(g, g.tables...)))
		default:
			all = append(all, g.change(t))
		}
	}
	return all
}

// rowSession returns the statements of a session that changes only rows of tables with transactions.
func (g *schemaGenerator) rowSession() []string {
	all := g.sessionSettings()
	safe := slices.DeleteFunc(slices.Clone(g.tables), func(t *generatedTable) bool { return t.isPlain })
	all = append(all, "begin")
	for range 1 + g.IntN(4) {
		all = append(all, g.change(pick(g, safe...)))
	}
	return append(all, pick(g, "commit", "commit", "rollback"))
}
