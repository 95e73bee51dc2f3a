// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
	"github.com/torpor-dev/torpor/internal/mysql/certificates"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
)

// markerSchema exists in an instance from before the first row is loaded until after the last. While it exists, the
// other data is a partial restore and may be removed.
const markerSchema = "torpor_restoring"

// restoreTarget is a session with the instance to restore.
type restoreTarget struct {
	*sql.Conn
	*mysqlServer
}

func (t restoreTarget) execStatement(ctx context.Context, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := t.ExecContext(ctx, statement, args...)
	return err
}

func (t restoreTarget) execAll(ctx context.Context, what string, statements ...string) error {
	for _, s := range statements {
		if err := t.execStatement(ctx, s); err != nil {
			return fmt.Errorf("%s: MySQL %s", what, describeError(err))
		}
	}
	return nil
}

func (t restoreTarget) queryValue(ctx context.Context, into any, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := t.QueryRowContext(ctx, query, args...).Scan(into); err != nil {
		return fmt.Errorf("query the instance: MySQL %s", describeError(err))
	}
	return nil
}

func (t restoreTarget) executedGTIDs(ctx context.Context) (string, error) {
	var set string
	err := t.queryValue(ctx, &set, "select @@gtid_executed")
	return strings.ReplaceAll(set, "\n", ""), err
}

func (t restoreTarget) readExecuted(ctx context.Context) (gtid.Set, error) {
	text, err := t.executedGTIDs(ctx)
	if err != nil {
		return gtid.Set{}, err
	}
	executed, err := gtid.Parse(text)
	if err != nil {
		return gtid.Set{}, fmt.Errorf("parse the GTID set: %w", err)
	}
	return executed, nil
}

// versionQuery returns the version of a server.
const versionQuery = "select @@version"

func (t restoreTarget) readVersion(ctx context.Context) (string, error) {
	var version string
	err := t.queryValue(ctx, &version, versionQuery)
	return version, err
}

func (t restoreTarget) areEqualGTIDSets(ctx context.Context, a, b string) (bool, error) {
	var same bool
	err := t.queryValue(ctx, &same, "select gtid_subset(?, ?) and gtid_subset(?, ?)", a, b, b, a)
	return same, err
}

// lockForRestore prevents a second restore while the session is open, and excludes the restore from the binary log.
func (t restoreTarget) lockForRestore(ctx context.Context) error {
	var mine sql.NullInt64
	if err := t.queryValue(ctx, &mine, "select get_lock(?, 0)", markerSchema); err != nil {
		return err
	}
	if mine.Int64 != 1 {
		return errors.New("expected no other restore into this instance, found one; the next attempt can begin after that restore has ended")
	}
	// The session must stay open while it is idle and other sessions load the dump and the binary logs.
	return t.execAll(ctx, "prepare the session", "set session sql_log_bin = off, wait_timeout = 31536000")
}

// prepareForLoad checks the content of the instance, and returns true if the whole backup is already loaded. It removes
// a partial restore. It never changes other data.
func (t restoreTarget) prepareForLoad(ctx context.Context, want storedBackup) (done bool, err error) {
	var writable, marked bool
	if err := t.queryValue(ctx, &writable, "select not @@read_only"); err != nil {
		return false, err
	}
	if err := t.queryValue(ctx, &marked, "select count(*) from information_schema.schemata where schema_name = ?", markerSchema); err != nil {
		return false, err
	}
	executed, err := t.executedGTIDs(ctx)
	if err != nil {
		return false, err
	}
	schemas, err := queryColumn(ctx, t.Conn, schemasQuery)
	if err != nil {
		return false, fmt.Errorf("list schemas: %w", err)
	}
	complete, err := t.areEqualGTIDSets(ctx, executed, want.gtids.String())
	switch {
	case err != nil:
		return false, err
	case writable:
		return false, fmt.Errorf("expected %s to be read-only before a restore, found it writable: the instance is in service; restore into a new MySQLCluster", t.host)
	case marked:
		return false, t.wipePartialRestore(ctx, schemas)
	case executed != "" && complete:
		return true, nil
	case executed != "" || len(schemas) > 0:
		return false, fmt.Errorf("expected %s to be empty, found %d schemas and the transactions %q; nothing is changed; restore into a new MySQLCluster, or delete its volume claims and Pods if the data are not needed",
			t.host, len(schemas), executed)
	}
	return false, nil
}

// wipePartialRestore removes the remains of an interrupted restore. The marker is kept, because the removal may be
// interrupted too.
func (t restoreTarget) wipePartialRestore(ctx context.Context, schemas []string) error {
	if err := t.openInstance(ctx); err != nil {
		return err
	}
	// The client of a killed restore may still be loading rows.
	ids, err := queryColumn(ctx, t.Conn, "select id from performance_schema.processlist where user = ? and db is not null and id <> connection_id()", RestoreUser)
	if err != nil {
		return fmt.Errorf("list connections: %w", err)
	}
	for _, id := range ids {
		_ = t.execStatement(ctx, "kill "+id) // The connection may already have ended.
	}
	left, err := listAccountNames(ctx, t.Conn, accountsQuery())
	if err != nil {
		return err
	}
	version, err := t.readVersion(ctx)
	if err != nil {
		return err
	}
	var statements []string
	for _, s := range schemas {
		statements = append(statements, "drop schema if exists "+mysqlshdump.QuoteName(s))
	}
	for _, a := range left {
		statements = append(statements, "drop user if exists "+a.quotedName())
	}
	return t.execAll(ctx, "remove a partial restore", append(statements, sqlclient.DiscardLogsStatement(version))...)
}

// changeSchemas runs a statement for each of the schemas.
func (t restoreTarget) changeSchemas(ctx context.Context, statement string, schemas []string) error {
	var statements []string
	for _, name := range schemas {
		statements = append(statements, statement+mysqlshdump.QuoteName(name))
	}
	return t.execAll(ctx, "create or drop temporary schemas", statements...)
}

// hasTransactions reports whether a table is transactional. MySQL ends a transaction at the first statement that
// changes a table without transactions, so such a statement cannot be applied in parts. A table that the current
// statement creates is not visible yet, and is treated as an InnoDB table.
func (t restoreTarget) hasTransactions(ctx context.Context, schema, table string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var engine string
	err := t.db.QueryRowContext(ctx, "select engine from information_schema.tables where table_schema = ? and table_name = ?", schema, table).Scan(&engine)
	return err != nil || strings.EqualFold(engine, "InnoDB")
}

// openInstance makes the instance writable for administrators. It stays read-only for clients. Events do not run,
// because an event whose definer is an administrator would add transactions. A server whose scheduler is DISABLED runs
// no events and does not allow a change to the setting.
func (t restoreTarget) openInstance(ctx context.Context) error {
	var runsEvents bool
	if err := t.queryValue(ctx, &runsEvents, "select @@global.event_scheduler = 'ON'"); err != nil {
		return err
	}
	statements := []string{"set global read_only = on", "set global super_read_only = off"}
	if runsEvents {
		statements = slices.Insert(statements, 0, "set global event_scheduler = off")
	}
	return t.execAll(ctx, "make the instance writable", statements...)
}

// stoppedByUsQuery returns true if openInstance stopped the scheduler, in this run or in one that was killed: MySQL
// records the account that changed a variable at run time. A scheduler that my.cnf turns off stays off.
const stoppedByUsQuery = `select count(*) from performance_schema.variables_info where variable_name = 'event_scheduler'
 and variable_source = 'DYNAMIC' and set_user = '` + RestoreUser + `' and @@global.event_scheduler = 'OFF'`

// closeInstance makes the instance read-only, and then restarts the event scheduler if openInstance stopped it.
func (t restoreTarget) closeInstance(ctx context.Context) error {
	var stopped bool
	if err := t.queryValue(ctx, &stopped, stoppedByUsQuery); err != nil {
		return err
	}
	statements := []string{"set global super_read_only = on"}
	if stopped {
		statements = append(statements, "set global event_scheduler = on")
	}
	return t.execAll(ctx, "make the instance read-only", statements...)
}

// beginLoad makes the instance writable and creates the marker. It sets the default row format to the one that allows
// the longest keys, because a dump and binary logs do not contain the default of the source. The marker contains the
// previous row format, even if an earlier run was killed.
func (t restoreTarget) beginLoad(ctx context.Context, record string) error {
	if err := t.openInstance(ctx); err != nil {
		return err
	}
	if err := t.execAll(ctx, "mark the instance", "create schema if not exists "+markerSchema,
		"create table if not exists "+markerSchema+".backup (record varchar(512) character set ascii primary key) engine = InnoDB row_format = dynamic",
		"create table if not exists "+markerSchema+".settings (row_format varchar(16) character set ascii primary key) engine = InnoDB row_format = dynamic",
		"insert into "+markerSchema+".settings select @@global.innodb_default_row_format where not exists (select * from "+markerSchema+".settings)",
		"set global innodb_default_row_format = dynamic"); err != nil {
		return err
	}
	if err := t.execStatement(ctx, "replace into "+markerSchema+".backup values (?)", record); err != nil {
		return fmt.Errorf("mark the instance: MySQL %s", describeError(err))
	}
	return nil
}

// finishLoad restores the default row format, and removes the marker after everything is loaded.
func (t restoreTarget) finishLoad(ctx context.Context) error {
	return t.execAll(ctx, "remove the mark", "set global innodb_default_row_format = (select row_format from "+markerSchema+".settings)", "drop schema "+markerSchema)
}

const (
	// adminPort accepts administrators even when max_connections is reached.
	adminPort = 33062
	// dialTimeout limits the time for establishing a connection, and askTimeout the time for a statement.
	dialTimeout = 5 * time.Second
	askTimeout  = time.Minute
	// codeDenied is MySQL's error number for a wrong user or password.
	codeDenied = 1045
)

type mysqlServer struct {
	host string
	db   *sql.DB
}

// storedCluster is a cluster with the store for its backups.
type storedCluster struct {
	namespace, name string
	store           bucket.Store
	servers         []*mysqlServer
}

// openCluster opens the store and the servers for a backup or for shipping. The caller must close the servers.
func openCluster(ctx context.Context, cluster string, where bucket.Config, hosts []string, password string) (storedCluster, error) {
	var c storedCluster
	var ok bool
	if c.namespace, c.name, ok = strings.Cut(cluster, "/"); !ok {
		return c, fmt.Errorf("--cluster: expected namespace/name, found %q", cluster)
	}
	var err error
	if c.store, err = bucket.OpenStore(ctx, where); err != nil {
		return c, fmt.Errorf("open the bucket: %w", err)
	}
	c.servers, err = openServers(hosts, BackupUser, password)
	return c, err
}

func openServers(hosts []string, user, password string) ([]*mysqlServer, error) {
	if len(hosts) == 0 {
		return nil, errors.New("--host: expected an instance, found none")
	}
	var all []*mysqlServer
	for _, host := range hosts {
		c := driver.NewConfig()
		c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", net.JoinHostPort(host, strconv.Itoa(adminPort))
		c.Timeout, c.InterpolateParams, c.Logger, c.Params = dialTimeout, true, &driver.NopLogger{}, sessionParams()
		trust, err := trustIn(host)
		if err != nil {
			return nil, err
		}
		if c.TLS = trust; trust == nil {
			c.TLSConfig = "preferred"
		}
		connector, err := driver.NewConnector(c)
		if err != nil {
			closeServers(all)
			return nil, fmt.Errorf("prepare the connection to %s: %w", host, err)
		}
		all = append(all, &mysqlServer{host: host, db: sql.OpenDB(connector)})
	}
	return all, nil
}

// trustIn returns a TLS configuration that accepts only certificates of the cluster. It returns nil if the Job has no
// CA certificates.
func trustIn(host string) (*tls.Config, error) {
	authorities := os.Getenv(backup.AuthoritiesVariable)
	if authorities == "" {
		return nil, nil
	}
	config, err := certificates.BuildClientConfig([]byte(authorities), host)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", backup.AuthoritiesVariable, err)
	}
	return config, nil
}

func closeServers(servers []*mysqlServer) {
	for _, s := range servers {
		_ = s.db.Close() // The program exits, so an error of Close has no effect.
	}
}

type instanceFacts struct {
	backup.SourceCandidate

	uuid, executed string
	// source is the host that the instance replicates from. It is empty if the instance does not replicate.
	source string
}

const factsStatement = `select @@server_uuid, @@gtid_executed, not @@read_only,
 ifnull((select max(host) from performance_schema.replication_connection_configuration where channel_name = ''), ''),
 (select count(*) from performance_schema.replication_connection_status s
  join performance_schema.replication_applier_status a on a.channel_name = s.channel_name
  where s.channel_name = '' and s.service_state = 'ON' and a.service_state = 'ON'),
 (select ifnull(max(timestampdiff(second, applying_transaction_original_commit_timestamp, now(6))), 0)
  from performance_schema.replication_applier_status_by_worker where channel_name = '' and applying_transaction <> '')`

func (s *mysqlServer) queryFacts(ctx context.Context) instanceFacts {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var f instanceFacts
	var lag int64
	if err := s.db.QueryRowContext(ctx, factsStatement).Scan(&f.uuid, &f.executed, &f.Writable, &f.source, &f.Replicating, &lag); err != nil {
		f.Problem = describeError(err)
		return f
	}
	f.Lag = time.Duration(lag) * time.Second
	return f
}

// knowsStatement compares a GTID set with the transactions that the server has executed or is committing. Those that are
// being committed are read first, so a transaction that is committed in between is in at least one of the sets.
// gtid_owned contains the ID of the committing session after each number.
const knowsStatement = `select gtid_subset(?, concat_ws(',', nullif(regexp_replace(@@global.gtid_owned, '#[0-9]+', ''), ''), @@global.gtid_executed))`

// hasExecutedOrCommits reports whether the server has executed, or is committing, all transactions of a GTID set. A
// replica may have executed a transaction whose commit still waits for other replicas.
func (s *mysqlServer) hasExecutedOrCommits(ctx context.Context, gtids string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var yes bool
	if err := s.db.QueryRowContext(ctx, knowsStatement, gtids).Scan(&yes); err != nil {
		return false, fmt.Errorf("compare GTID sets: %w", err)
	}
	return yes, nil
}

type serverInventory struct {
	Schemas  []string
	Accounts []mysqlAccount
	// unsafe lists tables whose engine is not transactional.
	unsafe []string
	// unsafeNames are the quoted names of the tables in unsafe.
	unsafeNames []string
	// floats lists the tables with FLOAT columns.
	floats []floatTable
	// broken lists views that a dump omits.
	broken []brokenView
	// knowsZones is true if the server has named time zones.
	knowsZones bool
	// definitions holds the hashes for dumpContents. version is the server's version.
	definitions map[string]string
	version     string
}

const (
	ownSchemas   = `('information_schema', 'mysql', 'ndbinfo', 'performance_schema', 'sys', '` + markerSchema + `')`
	schemasQuery = `select schema_name from information_schema.schemata where schema_name not in ` + ownSchemas + ` order by 1`
	unsafeQuery  = `select concat(table_schema, '.', table_name) from information_schema.tables
 where table_type = 'BASE TABLE' and engine <> 'InnoDB' and table_schema not in ` + ownSchemas + ` order by 1`
)

func (s *mysqlServer) readInventory(ctx context.Context) (serverInventory, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := s.db.Conn(ctx)
	if err != nil {
		return serverInventory{}, fmt.Errorf("connect to %s: the instance %s", s.host, describeError(err))
	}
	defer func() { _ = c.Close() }() // The connection returns to the pool.
	var i serverInventory
	if i.Schemas, err = queryColumn(ctx, c, schemasQuery); err != nil {
		return i, fmt.Errorf("list schemas: %w", err)
	}
	if i.unsafe, err = queryColumn(ctx, c, unsafeQuery); err != nil {
		return i, fmt.Errorf("list tables: %w", err)
	}
	if i.unsafeNames, err = queryColumn(ctx, c, tablesQuery+" and engine <> 'InnoDB'"); err != nil {
		return i, fmt.Errorf("list tables: %w", err)
	}
	if i.floats, err = listFloatTables(ctx, c); err != nil {
		return i, err
	}
	if err := c.QueryRowContext(ctx, knowsZonesQuery).Scan(&i.knowsZones); err != nil {
		return i, fmt.Errorf("count time zones: the instance %s", describeError(err))
	}
	if err := c.QueryRowContext(ctx, versionQuery).Scan(&i.version); err != nil {
		return i, fmt.Errorf("read the version: the instance %s", describeError(err))
	}
	if i.definitions, err = readDefinitions(ctx, c); err != nil {
		return i, err
	}
	if i.broken, err = listBrokenViews(ctx, c); err != nil {
		return i, err
	}
	i.Accounts, err = readAccounts(ctx, c)
	return i, err
}

func (i serverInventory) isEqual(other serverInventory) bool {
	return slices.Equal(i.Schemas, other.Schemas) && slices.Equal(i.broken, other.broken) &&
		slices.EqualFunc(i.floats, other.floats, floatTable.isEqual) &&
		slices.EqualFunc(i.Accounts, other.Accounts, mysqlAccount.isEqual)
}

// maxNamed is the maximum number of objects that a warning lists.
const maxNamed = 5

func (i serverInventory) unsafeTableWarnings() []string {
	if len(i.unsafe) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d tables are not transactional, so their rows may be from another time than the snapshot: %s",
		len(i.unsafe), strings.Join(i.unsafe[:min(len(i.unsafe), maxNamed)], ", "))}
}

// queryColumn returns the first column of a query.
func queryColumn(ctx context.Context, c *sql.Conn, query string, args ...any) ([]string, error) {
	rows, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err returns errors of the query.
	var all []string
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, fmt.Errorf("read the result: %w", err)
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	return all, nil
}

// describeError returns a predicate for the instance, such as "does not answer". It omits the server's message, which
// may contain data.
func describeError(err error) string {
	switch n := errorNumber(err); {
	case n == codeDenied:
		return "rejects the login: wrong user or password"
	case n != 0:
		return fmt.Sprintf("answered with MySQL's error %d", n)
	default:
		return "does not answer"
	}
}

func errorNumber(err error) uint16 {
	if m, ok := errors.AsType[*driver.MySQLError](err); ok {
		return m.Number
	}
	return 0
}
