// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// recordedState contains everything that has to be restored, by kind and name. It is read only with SHOW CREATE and
// SELECT, and shares no code with the product.
type recordedState struct {
	objects map[string]string
	// broken lists the views that cannot be read.
	broken map[string]bool
	gtids  string
	// defaultCollations are the default collations of the server, by their character sets.
	defaultCollations map[string]string
	// loggedRowFormat is in the definition of a table that CREATE TABLE ... SELECT created in a session with
	// show_create_table_verbosity, with the default row format of the server: the binary log contains the row format, so
	// a replica has it in the definition, too.
	loggedRowFormat string
}

// stateReader reads a state in one session.
type stateReader struct {
	t *testing.T
	*sql.Conn
	state recordedState
}

// readState reads the state of a server. No other session may write at the same time.
func readState(t *testing.T, s *mysqld.Server) recordedState {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = "moco-admin", adminPassword, "tcp", net.JoinHostPort(s.Address, strconv.Itoa(mysqld.AdminPort))
	c.Logger, c.MaxAllowedPacket, c.TLSConfig = &driver.NopLogger{}, 1<<30, "skip-verify"
	connector, err := driver.NewConnector(c)
	testenv.ExpectNoError(t, err)
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }() // The queries have finished.
	session, err := db.Conn(t.Context())
	testenv.ExpectNoError(t, err)
	r := &stateReader{t: t, Conn: session, state: recordedState{objects: map[string]string{}, broken: map[string]bool{}}}
	r.exec("set names utf8mb4")
	r.exec("set session sql_mode = '', time_zone = '+00:00', autocommit = 1, max_execution_time = 0, sql_select_limit = 18446744073709551615, sql_big_selects = 1, lock_wait_timeout = 30," +
		" sql_quote_show_create = 1, show_gipk_in_create_table_and_information_schema = 1, print_identified_with_as_hex = 1, show_create_table_verbosity = 0, show_create_table_skip_secondary_engine = 0," +
		" transaction_isolation = 'READ-COMMITTED', optimizer_switch = default, net_write_timeout = 600, wait_timeout = 600")
	r.readSchemas()
	r.readAccounts()
	r.state.defaultCollations = map[string]string{}
	for _, row := range r.list("select character_set_name, default_collate_name from information_schema.character_sets") {
		r.state.defaultCollations[row[0]] = row[1]
	}
	r.state.loggedRowFormat = " ROW_FORMAT=" + r.list("select upper(@@global.innodb_default_row_format)")[0][0]
	r.state.gtids = strings.ReplaceAll(r.list("select @@global.gtid_executed")[0][0], "\n", "")
	for _, row := range r.list("xa recover convert xid") {
		r.state.objects["prepared transaction "+row[3]] = "prepared"
	}
	return r.state
}

func (r *stateReader) exec(statement string) {
	r.t.Helper()
	if _, err := r.ExecContext(r.t.Context(), statement); err != nil {
		r.t.Fatalf("%s: %v", statement, err)
	}
}

func (r *stateReader) query(query string, args ...any) ([][]string, error) {
	rows, err := r.QueryContext(r.t.Context(), query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns the error.
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var all [][]string
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]string, len(names))
		for i, v := range values {
			row[i] = v.String
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

func (r *stateReader) list(query string, args ...any) [][]string {
	r.t.Helper()
	all, err := r.query(query, args...)
	if err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
	return all
}

func withoutBackticks(text string) string { return strings.ReplaceAll(text, "`", "") }

func inBackticks(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

const notMySQLs = " not in ('information_schema', 'mysql', 'performance_schema', 'sys')"

func (r *stateReader) readSchemas() {
	for _, row := range r.list("select schema_name from information_schema.schemata where schema_name" + notMySQLs) {
		schema := row[0]
		r.show("schema", schema, "", "database")
		for _, table := range r.list("select table_name, table_type, table_collation from information_schema.tables where table_schema = ?", schema) {
			if table[1] == "VIEW" {
				r.readView(schema, table[0])
				continue
			}
			r.show("table", schema, table[0], "table")
			key := objectKey("table", schema, table[0])
			// MySQL shows the table's collation for some columns.
			r.state.objects[key] = regexp.MustCompile(" COLLATE "+table[2]+`\b`).ReplaceAllString(r.state.objects[key], "")
			r.readRows(schema, table[0])
		}
		for _, found := range r.list("select routine_name, lower(routine_type) from information_schema.routines where routine_schema = ?", schema) {
			r.show(found[1], schema, found[0], found[1])
		}
		for _, found := range r.list("select trigger_name, action_order from information_schema.triggers where trigger_schema = ?", schema) {
			r.show("trigger", schema, found[0], "trigger")
			r.state.objects[objectKey("order of trigger", schema, found[0])] = found[1]
		}
		for _, found := range r.list("select event_name from information_schema.events where event_schema = ?", schema) {
			r.show("event", schema, found[0], "event")
		}
	}
}

func objectKey(kind, schema, name string) string {
	if name == "" {
		return kind + " " + inBackticks(schema)
	}
	return kind + " " + inBackticks(schema) + "." + inBackticks(name)
}

// nextNumber matches the option with the next number of a table. The number also grows with rows that are rolled back.
var nextNumber = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

// impliedCharset matches a character set in front of a collation. MySQL shows it only if the original statement
// contained it.
var impliedCharset = regexp.MustCompile(` CHARACTER SET \w+ COLLATE `)

// show records the output of SHOW CREATE, without the time at which a trigger was created.
func (r *stateReader) show(kind, schema, name, word string) {
	r.t.Helper()
	quoted := inBackticks(schema)
	if name != "" {
		quoted += "." + inBackticks(name)
	}
	rows := r.list("show create " + word + " " + quoted)
	values := rows[0][1:]
	if word == "trigger" {
		values = values[:len(values)-1]
	}
	text := strings.Join(values, " | ")
	if word == "table" {
		text = impliedCharset.ReplaceAllString(nextNumber.ReplaceAllString(text, ""), " COLLATE ")
		text = strings.ReplaceAll(text, " /*!50100 TABLESPACE `innodb_system` */", "") // It depends on innodb_file_per_table.
		text = withoutBackticks(text)                                                  // An expression from a session with sql_quote_show_create = 0 has no backticks.
	}
	r.state.objects[objectKey(kind, schema, name)] = text
}

func (r *stateReader) readView(schema, name string) {
	key := objectKey("view", schema, name)
	if _, err := r.query("select * from " + inBackticks(schema) + "." + inBackticks(name) + " limit 0"); err != nil {
		r.state.broken[key] = true
		// The text of such a view depends on its first CREATE statement: "select a.*" becomes `schema`.`a`.`id`. The dump of
		// the view, from before it became invalid, contains `a`.`id`.
		const refersToMissing = 1356
		if refused, isRefused := errors.AsType[*driver.MySQLError](err); isRefused && refused.Number == refersToMissing {
			r.state.objects[key] = "broken"
			return
		}
	}
	if rows, err := r.query("show create view " + inBackticks(schema) + "." + inBackticks(name)); err == nil {
		// A session with sql_quote_show_create = 0 omits quotes.
		r.state.objects[key] = strings.ReplaceAll(strings.Join(rows[0][1:], " | "), "`", "")
	} else {
		r.state.objects[key] = "broken"
	}
}

// readRows records a hash of all rows, in any order. The binary protocol returns floating point numbers exactly.
func (r *stateReader) readRows(schema, name string) {
	r.t.Helper()
	var columns []string
	for _, row := range r.list("select column_name from information_schema.columns where table_schema = ? and table_name = ? order by ordinal_position", schema, name) {
		columns = append(columns, inBackticks(row[0]))
	}
	table := inBackticks(schema) + "." + inBackticks(name)
	rows, err := r.readValues("select " + strings.Join(columns, ", ") + " from " + table)
	if err != nil {
		r.t.Fatalf("read the rows of %s: %v", table, err)
	}
	r.state.objects[objectKey("rows of table", schema, name)] = describeRows(rows, columns)
}

// describeRows returns hashes of all rows and of each column, which show where rows differ.
func describeRows(values [][]any, columns []string) string {
	rows := make([][]string, len(values))
	for i, row := range values {
		for _, v := range row {
			sum := sha256.Sum256(fmt.Appendf(nil, "%T %v", v, v))
			rows[i] = append(rows[i], hex.EncodeToString(sum[:]))
		}
	}
	text := fmt.Sprintf("%d rows %s", len(rows), hashSorted(rows, func(row []string) string { return strings.Join(row, " ") }))
	for i, column := range columns {
		text += " " + column + " " + hashSorted(rows, func(row []string) string { return row[i] })
	}
	return text
}

func hashSorted(rows [][]string, of func([]string) string) string {
	const shown = 6
	all := make([]string, len(rows))
	for i, row := range rows {
		all[i] = of(row)
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:shown])
}

func (r *stateReader) readValues(query string) ([][]any, error) {
	if _, err := r.ExecContext(r.t.Context(), "set character_set_results = null"); err != nil {
		return nil, err
	}
	defer func() {
		_, _ = r.ExecContext(context.WithoutCancel(r.t.Context()), "set character_set_results = utf8mb4")
	}()
	statement, err := r.PrepareContext(r.t.Context(), query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = statement.Close() }() // The statement only reads.
	rows, err := statement.QueryContext(r.t.Context())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns the error.
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	var all [][]any
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := slices.Clone(values)
		for i, v := range row {
			switch v := v.(type) {
			case []byte:
				row[i] = slices.Clone(v)
			case float32, float64:
				if v == float32(0) || v == float64(0) {
					row[i] = 0 // A dump has no negative zero.
				}
			}
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

func (r *stateReader) readAccounts() {
	r.t.Helper()
	for _, row := range r.list("select user, host from mysql.user where user not in ('root', 'moco-admin', 'moco-backup', 'moco-repl') and user not like 'mysql.%'") {
		quoted := "'" + strings.ReplaceAll(strings.ReplaceAll(row[0], `\`, `\\`), "'", "''") + "'@'" + row[1] + "'"
		text := r.list("show create user " + quoted)[0][0]
		var grants []string
		for _, grant := range r.list("show grants for " + quoted) {
			grants = append(grants, grant[0])
		}
		slices.Sort(grants)
		r.state.objects["account "+quoted] = text + " | " + strings.Join(grants, " | ")
	}
}

// ofSchema returns the part of the state that a restore of one schema restores.
func (s recordedState) ofSchema(schema string) recordedState {
	part := recordedState{objects: map[string]string{}, broken: s.broken, gtids: s.gtids, defaultCollations: s.defaultCollations, loggedRowFormat: s.loggedRowFormat}
	for key, text := range s.objects {
		_, rest, _ := strings.Cut(key, "`")
		if "`"+rest == inBackticks(schema) || strings.HasPrefix("`"+rest, inBackticks(schema)+".") {
			part.objects[key] = text
		}
	}
	return part
}

// isSameDefinition reports whether a definition is the same at a replica. The binary log may name the default collation of
// a column of CREATE TABLE ... SELECT instead of its character set.
func (s recordedState) isSameDefinition(want, is string) bool {
	if want == is {
		return true
	}
	name := func(definition string) string {
		for set, collation := range s.defaultCollations {
			for _, next := range []string{" DEFAULT", " NOT NULL"} {
				definition = strings.ReplaceAll(definition, " CHARACTER SET "+set+next, " COLLATE "+collation+next)
			}
		}
		return definition
	}
	return name(want) == name(strings.Replace(is, s.loggedRowFormat, "", 1))
}

// differences returns the objects that differ.
func (s recordedState) differences(found recordedState, mayDiffer func(key string) bool) []string {
	var all []string
	keys := maps.Clone(s.objects)
	maps.Copy(keys, found.objects)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		want, isWanted := s.objects[key]
		is, isThere := found.objects[key]
		switch {
		case isWanted && isThere && s.isSameDefinition(want, is):
		case isWanted && mayDiffer(key):
		case !isThere:
			all = append(all, key+"\n   is missing; source: "+want)
		case !isWanted:
			all = append(all, key+"\n   is not at the source; found: "+is)
		default:
			all = append(all, key+"\n   source: "+want+"\n   found:  "+is)
		}
	}
	return all
}
