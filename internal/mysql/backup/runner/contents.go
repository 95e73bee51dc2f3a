// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
)

// dumpContents describes the contents of a dump, for comparison after a restore.
type dumpContents struct {
	// Version is the version of the source. Servers of other versions may format definitions differently.
	Version string `json:"version"`
	// Rows holds the number of rows by the quoted name of the table. The number is unknownRows for a table that was not
	// counted.
	Rows map[string]int64 `json:"rows"`
	// Definitions holds a hash of the definition by the kind and quoted name of an object.
	Definitions map[string]string `json:"definitions"`
}

const unknownRows = -1

// snapshotSession is a session with the same snapshot as the dump.
type snapshotSession struct{ *sql.Conn }

// openSnapshotSession opens a session before writers are blocked, because connecting may take longer than the snapshot.
func openSnapshotSession(ctx context.Context, s *mysqlServer) (snapshotSession, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := s.db.Conn(ctx)
	if err != nil {
		return snapshotSession{}, fmt.Errorf("connect to %s: the instance %s", s.host, describeError(err))
	}
	// lock_wait_timeout limits how long this session waits for a DDL statement. The times in a dump are in UTC.
	settings := fmt.Sprintf("set session lock_wait_timeout = %d, transaction_isolation = 'REPEATABLE-READ', time_zone = '+00:00'", int(LockTimeout.Seconds()))
	if _, err := c.ExecContext(ctx, settings); err != nil {
		return snapshotSession{}, errors.Join(fmt.Errorf("prepare a session for the snapshot: the instance %s", describeError(err)), closeSession(c))
	}
	return snapshotSession{c}, nil
}

// takeSnapshot takes the snapshot. The caller must hold the writers' lock.
func (s snapshotSession) takeSnapshot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for _, statement := range []string{"start transaction with consistent snapshot, read only", "savepoint tables"} {
		if _, err := s.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("take the snapshot: the instance %s", describeError(err))
		}
	}
	return nil
}

// releaseTables rolls back to the savepoint, which releases the metadata locks of tables. A DDL statement that waits
// for them would block other sessions.
func (s snapshotSession) releaseTables(ctx context.Context) error {
	if _, err := s.ExecContext(ctx, "rollback to savepoint tables"); err != nil {
		return fmt.Errorf("release the tables of the snapshot: the instance %s", describeError(err))
	}
	return nil
}

// rowCounter counts the rows of a snapshot.
type rowCounter struct {
	snapshotSession
	tables []string
	// cancel stops the counting, and counting waits until it has stopped.
	cancel   context.CancelFunc
	counting sync.WaitGroup
}

// rowCounts holds the result of counting.
type rowCounts struct {
	rows map[string]int64
	err  error
}

// start counts rows in the background.
func (r *rowCounter) start(ctx context.Context, unsafe []string) <-chan rowCounts {
	ctx, r.cancel = context.WithCancel(ctx)
	result := make(chan rowCounts, 1)
	r.counting.Go(func() {
		rows, err := r.countRows(ctx, unsafe)
		result <- rowCounts{rows, err}
	})
	return result
}

// stop stops the counting and closes the session.
func (r *rowCounter) stop() error {
	if r.cancel != nil {
		r.cancel()
	}
	r.counting.Wait()
	return closeSession(r.Conn)
}

// countRows counts the rows of all tables. The result is unknownRows for a table that is not transactional, or for
// which MySQL rejects the query, for example because the table was changed since the snapshot.
func (r *rowCounter) countRows(ctx context.Context, unsafe []string) (map[string]int64, error) {
	rows := map[string]int64{}
	for _, table := range r.tables {
		rows[table] = unknownRows
		if slices.Contains(unsafe, table) {
			continue
		}
		n, err := countTable(ctx, r.Conn, table)
		if err != nil && errorNumber(err) == 0 {
			return nil, fmt.Errorf("count the rows of %s: the instance %s", table, describeError(err))
		}
		if err == nil {
			rows[table] = n
		}
		if err := r.releaseTables(ctx); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// countTable counts rows without using an index, as a dump reads them. An index on an expression may contain too many
// entries: when a row is changed in the SQL mode PAD_CHAR_TO_FULL_LENGTH, MySQL does not find its old entry.
func countTable(ctx context.Context, c *sql.Conn, table string) (n int64, err error) {
	err = c.QueryRowContext(ctx, "select count(*) from "+table+" use index ()").Scan(&n)
	return n, err
}

// definedKind is a kind of object, or of a part of each table, and its source in information_schema. prefix is the
// prefix of the columns with the schema and the name. text is an expression for the definition.
type definedKind struct {
	kind, from, prefix, where, text string
	// isGrouped is true if text is an expression over several rows of information_schema.
	isGrouped bool
}

// partOfTable ends the kind of a part of each table.
const partOfTable = " of table"

// definitionsQuery returns a query with two columns for each user object: its kind and quoted name, and a hash of its
// definition. The hash does not cover expressions of tables, because MySQL may print an expression differently after
// the table is created from a dump, for example coalesce(y, 1) for a column of the type YEAR.
func definitionsQuery() string {
	const (
		routine = "concat_ws(' ', routine_definition, dtd_identifier, is_deterministic, sql_data_access, security_type, sql_mode, definer)"
		// baseTables joins the tables to columns c.
		baseTables = "columns c join information_schema.tables t on t.table_schema = c.table_schema and t.table_name = c.table_name and t.table_type = 'BASE TABLE'"
	)
	var parts []string
	for _, k := range []definedKind{
		{
			"table", baseTables, "c.table", "true",
			"group_concat(concat_ws(' ', column_name, column_type, is_nullable, extra, collation_name) order by ordinal_position)", true,
		},
		// A default of a TIMESTAMP column is stored in the time zone of the session that created the table.
		{
			"attributes" + partOfTable, baseTables, "c.table", "true", "concat_ws(' ', max(engine), max(table_collation), max(table_comment), group_concat(concat_ws(' '," +
				" column_name, if(data_type = 'timestamp' or extra like '%DEFAULT_GENERATED%', null, column_default), srs_id, column_comment) order by ordinal_position))", true,
		},
		// The length of a shortened key on an expression depends on the row format.
		{
			"indexes" + partOfTable, "statistics", "table", "true", "group_concat(concat_ws(' ', index_name, seq_in_index, non_unique, column_name, collation," +
				" if(column_name is not null, sub_part, null), index_type, is_visible, index_comment) order by index_name, seq_in_index)", true,
		},
		{
			"foreign keys" + partOfTable, "key_column_usage k join information_schema.referential_constraints r" +
				" on r.constraint_schema = k.constraint_schema and r.constraint_name = k.constraint_name and r.table_name = k.table_name",
			"k.table", "true", "group_concat(concat_ws(' ', k.constraint_name, k.ordinal_position, k.column_name, k.referenced_table_schema," +
				" k.referenced_table_name, k.referenced_column_name, update_rule, delete_rule) order by k.constraint_name, k.ordinal_position)", true,
		},
		// A join with check_constraints takes minutes for some thousand tables.
		{
			"checks" + partOfTable, "table_constraints", "table", "constraint_type = 'CHECK'",
			"group_concat(concat_ws(' ', constraint_name, enforced) order by constraint_name)", true,
		},
		{
			"partitions" + partOfTable, "partitions", "table", "partition_name is not null",
			"group_concat(concat_ws(' ', partition_ordinal_position, partition_name, subpartition_ordinal_position, subpartition_name, partition_method," +
				" subpartition_method, if(partition_description like '%''%', null, partition_description)) order by partition_ordinal_position, subpartition_ordinal_position)", true,
		},
		// The definition of a view that was created from a dump has additional parentheses. It also has quotes, even if
		// the original CREATE VIEW ran with sql_quote_show_create = 0.
		{"view", "views", "table", "true", "concat_ws(' ', replace(replace(replace(view_definition, '`', ''), '(', ''), ')', ''), check_option, definer, security_type)", false},
		{"trigger", "triggers", "trigger", "true", "concat_ws(' ', event_manipulation, event_object_table, action_timing, action_statement, sql_mode, definer)", false},
		{
			"event", "events", "event", "true", "concat_ws(' ', event_definition, sql_mode, definer, time_zone, event_type, execute_at," +
				" interval_value, interval_field, starts, ends, on_completion)", false,
		},
		{"procedure", "routines", "routine", "routine_type = 'PROCEDURE'", routine, false},
		{"function", "routines", "routine", "routine_type = 'FUNCTION'", routine, false},
	} {
		parts = append(parts, k.query())
	}
	return strings.Join(parts, " union all ")
}

func (k definedKind) query() string {
	schema, name := k.prefix+"_schema", k.prefix+"_name"
	query := fmt.Sprintf("select concat('%s `', replace(%s, '`', '``'), '`.`', replace(%s, '`', '``'), '`') as name, left(sha2(%s, 256), 16) as hash"+
		" from information_schema.%s where %s and %s not in %s", k.kind, schema, name, k.text, k.from, k.where, schema, ownSchemas)
	if k.isGrouped {
		query += " group by " + schema + ", " + name
	}
	return query
}

// definitionsSession makes every server show the same columns, and prevents long definitions from being truncated.
const definitionsSession = "set session group_concat_max_len = 67108864 /*!80030 , show_gipk_in_create_table_and_information_schema = on */"

func readDefinitions(ctx context.Context, c *sql.Conn) (map[string]string, error) {
	if _, err := c.ExecContext(ctx, definitionsSession); err != nil {
		return nil, fmt.Errorf("prepare the list of definitions: the instance %s", describeError(err))
	}
	rows, err := c.QueryContext(ctx, definitionsQuery())
	if err != nil {
		return nil, fmt.Errorf("list definitions: the instance %s", describeError(err))
	}
	defer func() { _ = rows.Close() }() // rows.Err returns errors of the query.
	all := map[string]string{}
	for rows.Next() {
		var name string
		var hash sql.NullString
		if err := rows.Scan(&name, &hash); err != nil {
			return nil, fmt.Errorf("list definitions: %w", err)
		}
		all[name] = hash.String
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	return all, nil
}

// tableOfPart returns the key of the table of a part, such as the part "indexes of table `a`.`b`".
func tableOfPart(name string) (table string, isPart bool) {
	kind, _, _ := strings.Cut(name, " `")
	if !strings.HasSuffix(kind, partOfTable) {
		return "", false
	}
	return "table" + strings.TrimPrefix(name, kind), true
}

// describeContents combines the inventories from before and after the snapshot. Definitions that changed in between
// are not compared.
func describeContents(before, after serverInventory, rows map[string]int64) *dumpContents {
	c := &dumpContents{Version: before.version, Rows: rows, Definitions: map[string]string{}}
	for name, hash := range before.definitions {
		if after.definitions[name] == hash {
			c.Definitions[name] = hash
		}
	}
	for _, v := range before.broken {
		delete(c.Definitions, "view "+v.quotedName())
	}
	return c
}

// describeDifference returns how the definition of an object, or of a part of a table, differs from the found ones. It
// is empty if the definition does not differ, or if the instance lacks the table of a part.
func (c *dumpContents) describeDifference(name string, found map[string]string, version string, isWanted func(string) bool) string {
	hash, isThere := found[name]
	isSameVersion := version == c.Version
	table, isPart := tableOfPart(name)
	switch {
	case isThere && (hash == c.Definitions[name] || !isSameVersion):
		return ""
	case isPart:
		if _, isTableThere := found[table]; !isTableThere || !isSameVersion || !isWanted(table) {
			return ""
		}
		return fmt.Sprintf("the definition of the %s differs from that in the backup", name)
	case !isThere:
		return name + " is in the backup, but is missing after the load"
	default:
		return fmt.Sprintf("the definition of %s differs from that in the backup", name)
	}
}

// compareContents adds the differences between the backup and the instance to left. It runs after the dump was loaded
// and before the binary logs are applied. Parts that are already in left are not added again.
func (o RestoreOptions) compareContents(ctx context.Context, t restoreTarget, want *dumpContents, left *leftOutParts) error {
	if want == nil {
		o.Log.Info("Did not compare the restored data, because an earlier version of Torpor made the backup")
		return nil
	}
	found, err := readDefinitions(ctx, t.Conn)
	if err != nil {
		return err
	}
	version, err := t.readVersion(ctx)
	if err != nil {
		return err
	}
	isWanted := func(name string) bool {
		return (o.Schema == "" || strings.Contains(name, " "+mysqlshdump.QuoteName(o.Schema)+".")) && !left.names[name]
	}
	for _, name := range slices.Sorted(maps.Keys(want.Definitions)) {
		if isWanted(name) {
			if difference := want.describeDifference(name, found, version, isWanted); difference != "" {
				left.add(name, "%s", difference)
			}
		}
	}
	compared := 0
	for _, table := range slices.Sorted(maps.Keys(want.Rows)) {
		name := "table " + table
		if _, isThere := found[name]; !isThere || !isWanted(name) || want.Rows[table] == unknownRows {
			continue
		}
		n, err := countTable(ctx, t.Conn, table)
		if err != nil {
			return fmt.Errorf("count the rows of %s: the instance %s", table, describeError(err))
		}
		compared++
		if n != want.Rows[table] {
			left.add(name, "%s has %d rows, but %d in the backup", name, n, want.Rows[table])
		}
	}
	o.Log.Info("Compared the restored data with the backup", "definitions", len(want.Definitions), "countedTables", compared)
	return nil
}
