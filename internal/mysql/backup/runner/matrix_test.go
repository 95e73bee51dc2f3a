// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// matrixTotals sums up several rounds.
type matrixTotals struct {
	Seed     uint64 `json:"seed"`
	Rounds   int    `json:"rounds"`
	Accepted int    `json:"accepted_statements"`
	Refused  int    `json:"refused_statements"`
	Compared int    `json:"compared_objects"`
	// Inseparable is the number of single-schema restores that were refused before anything was written.
	Inseparable int `json:"inseparable_binary_logs"`
	// Crashes is the number of rounds that are not counted, because mysqld of the source crashed or hung.
	Crashes int            `json:"crashed_sources"`
	Counts  map[string]int `json:"counts"`
}

// TestRandomSchemasAndSettings restores random schemas of servers with random settings to a random point in time. make
// soak NAME=backup runs more rounds.
func TestRandomSchemasAndSettings(t *testing.T) {
	totals := &matrixTotals{Counts: map[string]int{}}
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { runMatrixRound(t, seed, totals) })
	}
	testenv.ExpectEqual(t, "sources that crashed", 0, totals.Crashes)
}

// TestSoak runs rounds with new seeds until its time has elapsed.
func TestSoak(t *testing.T) {
	long, seed := testenv.ReadSoakOptions(t, "backup")
	totals := &matrixTotals{Seed: seed, Counts: map[string]int{}}
	for end := time.Now().Add(long); time.Now().Before(end); seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { runMatrixRound(t, seed, totals) })
	}
	testenv.SaveFigures(t, "backup-soak.json", totals)
	for _, kind := range slices.Sorted(maps.Keys(totals.Counts)) {
		t.Logf("%6d %s", totals.Counts[kind], kind)
	}
	t.Logf("%d rounds, %d statements and %d that MySQL refused, %d objects compared, %d restores of one schema refused, %d other rounds whose source crashed or hung",
		totals.Rounds, totals.Accepted, totals.Refused, totals.Compared, totals.Inseparable, totals.Crashes)
}

// matrixRound is one source server with its history.
type matrixRound struct {
	*testEnv

	t      *testing.T
	totals *matrixTotals
	source *mysqld.Server
	// main generates all kinds of statements. rows generates only row changes, concurrently with main.
	main, rows *schemaGenerator

	mu      sync.Mutex
	history []string
	// unsafe lists the statements that are not in the dump, and that the binary log contains as text although they are
	// not deterministic.
	unsafe []unsafeStatement
	// crash describes how the source crashed, or which statement did not end. It is empty while the source runs.
	crash string
	// turn is locked while a session writes rows.
	turn sync.Mutex
}

// unsafeStatement is a statement with MySQL's warning 1592.
type unsafeStatement struct {
	// text also contains the bodies of the triggers that the statement may run.
	text string
	// executed is the set of transactions that are committed right after the statement.
	executed gtid.Set
}

func runMatrixRound(t *testing.T, seed uint64, totals *matrixTotals) {
	const mainStream, rowStream, settingStream, mostSettings = 1, 2, 3, 8
	m := &matrixRound{testEnv: newTestEnv(t), t: t, totals: totals, main: newSchemaGenerator(seed, mainStream)}
	t.Cleanup(func() { m.keepHistory(seed) })
	settings := newSchemaGenerator(seed, settingStream)
	sourceSettings, targetSettings := settings.settings(mostSettings), settings.settings(mostSettings)
	m.history = append(m.history, "source: "+strings.Join(sourceSettings, " "), "target: "+strings.Join(targetSettings, " "))
	t.Logf("source %q, target %q", sourceSettings, targetSettings)
	m.installation.Settings = sourceSettings
	m.source = m.installation.StartServer(t)
	m.run([]string{"set global super_read_only = off", "set global read_only = off"})
	if m.createAll(); m.isOver() {
		return
	}
	m.rows = newSchemaGenerator(seed, rowStream)
	m.rows.schemas, m.rows.tables = m.main.schemas, m.main.copyTables()
	m.startShipping(t, m.source.Address)
	state, point := m.writeDuringBackup()
	if m.isOver() {
		return
	}
	if m.run([]string{"create schema after_the_point"}); m.isOver() {
		return
	}
	m.installation.Settings = targetSettings
	schema := m.main.schemas[m.main.IntN(len(m.main.schemas))]
	m.restoreAndCompare(state, point, "")
	m.restoreAndCompare(state, point, schema)
	totals.Rounds++
	for _, g := range []*schemaGenerator{m.main, m.rows, settings} {
		for kind, n := range g.counts {
			totals.Counts[kind] += n
		}
	}
}

// writeDuringBackup takes a backup while rows are written, runs random sessions, and records the state at a point
// between them. If the source crashes, it returns early.
func (m *matrixRound) writeDuringBackup() (state recordedState, point time.Time) {
	ctx, cancel := context.WithCancel(m.t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { m.writeRows(ctx) })
	defer func() { cancel(); writing.Wait() }()
	status, err := m.runBackup(m.t.Context(), m.t, m.source.Address)
	m.noteCrash()
	if err != nil && !m.hasCrashed() {
		m.t.Errorf("backup: %v", err)
		return state, point
	}
	m.main.isAfterBackup = true
	m.forgetDumped(status.GTIDSet)
	const most = 16
	sessions := 2 + m.main.IntN(most)
	recordAfter := m.main.IntN(sessions)
	for i := range sessions {
		m.run(m.main.session())
		if m.hasCrashed() {
			break
		}
		if i == recordAfter {
			state, point = m.record(status.Time.Time)
		}
	}
	return state, point
}

// createAll creates the schemas that the backup will contain.
func (m *matrixRound) createAll() {
	g := m.main
	for range 2 + g.IntN(2) {
		m.run([]string{g.createSchema()})
	}
	for range 3 + g.IntN(6) {
		statements := append(g.sessionSettings(), g.createTable(g.schemas[g.IntN(len(g.schemas))]))
		t := g.tables[len(g.tables)-1]
		for range 2 + g.IntN(6) {
			statements = append(statements, g.change(t))
		}
		m.run(statements)
	}
	for range 4 + g.IntN(10) {
		m.run(append(g.sessionSettings(), g.createObject()))
	}
	for range g.IntN(8) {
		m.run(g.session())
	}
}

func (m *matrixRound) writeRows(ctx context.Context) {
	for ctx.Err() == nil {
		m.turn.Lock()
		m.run(m.rows.rowSession())
		m.turn.Unlock()
	}
}

// record reads the state of the source while nothing is written. The returned point is later than after.
func (m *matrixRound) record(after time.Time) (recordedState, time.Time) {
	m.turn.Lock()
	defer m.turn.Unlock()
	if m.noteCrash(); m.hasCrashed() {
		return recordedState{}, time.Time{}
	}
	testenv.Eventually(m.t, "the time of the backup is over", func() error { return testenv.ErrorIf(!time.Now().After(after), "not yet") })
	state, point := readState(m.t, m.source), time.Now().Truncate(time.Microsecond)
	m.remember("-- the point " + point.UTC().Format(time.RFC3339Nano))
	return state, point
}

// run runs statements in one session. MySQL may refuse some of them.
func (m *matrixRound) run(statements []string) {
	m.t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = "moco-admin", adminPassword, "tcp", net.JoinHostPort(m.source.Address, strconv.Itoa(mysqld.AdminPort))
	c.Logger, c.TLSConfig = &driver.NopLogger{}, "skip-verify"
	connector, err := driver.NewConnector(c)
	testenv.ExpectNoError(m.t, err)
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }() // Closing the session ends the transaction.
	session, err := db.Conn(context.WithoutCancel(m.t.Context()))
	if err != nil {
		if !m.findCrash() {
			m.t.Errorf("connect to the source: %v", err)
		}
		return
	}
	for _, statement := range statements {
		err := m.execute(session, statement)
		refused, isRefused := errors.AsType[*driver.MySQLError](err)
		switch {
		case isRefused:
			m.remember(fmt.Sprintf("%s; -- error %d: %s", statement, refused.Number, refused.Message))
		case err != nil:
			m.remember(statement + "; -- the session ends: " + err.Error())
			return
		default:
			m.remember(statement + ";")
			m.noteUnsafe(session, statement)
		}
		m.countStatement(err == nil)
		if strings.HasPrefix(statement, "xa prepare") && err != nil {
			return // The session ends, and the transaction with it.
		}
	}
	m.endPrepared(session, statements)
}

// statementTimeout is longer than any statement of a round takes.
const statementTimeout = 2 * time.Minute

// execute runs a statement. A statement that does not end is a bug of MySQL, which ends the round like a crash. MySQL
// 9.7.4, for example, does not end an INSERT IGNORE … SELECT of seed 7407, and every other statement on the table then
// waits.
func (m *matrixRound) execute(session *sql.Conn, statement string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.t.Context()), statementTimeout)
	defer cancel()
	_, err := session.ExecContext(ctx, statement)
	if ctx.Err() != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.crash = fmt.Sprintf("a statement has not ended within %s: %s", statementTimeout, statement)
	}
	return err
}

// noteCrash records a crash of the source that no session has met yet.
func (m *matrixRound) noteCrash() { m.run(nil) }

// crashTimeout is longer than a server that crashes needs for its report.
const crashTimeout = time.Minute

// findCrash waits for the end of a source that accepts no session, and reports whether it crashed. A crash of the source
// is a bug of MySQL. MySQL 9.7.4, for example, crashes at an UPDATE of seed 5539, in a partitioned table with a key on
// an expression, and at one of seed 6230, which sets a column of a foreign key.
func (m *matrixRound) findCrash() bool {
	report, hasEnded := m.source.WaitForCrash(crashTimeout)
	m.mu.Lock()
	defer m.mu.Unlock()
	if hasEnded {
		m.crash = report
	}
	return hasEnded
}

func (m *matrixRound) hasCrashed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crash != ""
}

// isOver reports whether the round has ended because it failed, or because the source crashed or hung.
func (m *matrixRound) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crash == "" {
		return m.t.Failed()
	}
	m.totals.Crashes++
	m.t.Logf("the round is not counted, because mysqld of the source crashed or hung: %s", m.crash)
	return true
}

// noteUnsafe records a statement if MySQL warned that it is unsafe, because its replay may change other rows. Statements
// before the backup are in the dump.
func (m *matrixRound) noteUnsafe(session *sql.Conn, statement string) {
	if m.rows == nil {
		return
	}
	const unsafe = "1592"
	reader := stateReader{t: m.t, Conn: session}
	warnings, err := reader.query("show warnings")
	if err != nil || !slices.ContainsFunc(warnings, func(row []string) bool { return row[1] == unsafe }) {
		return // After an error, the server has closed the session.
	}
	executed, err := reader.query("select @@global.gtid_executed")
	if err != nil {
		return
	}
	committed, err := gtid.Parse(executed[0][0])
	if err != nil {
		m.t.Errorf("parse the GTID set: %v", err)
		return
	}
	triggers, err := reader.query("select event_object_schema, event_object_table, action_statement from information_schema.triggers")
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unsafe = append(m.unsafe, unsafeStatement{withTriggers(statement, triggers), committed})
}

// withTriggers appends the bodies of the triggers that a statement may run. The statement may change other rows of the
// triggers' tables, too. The rows of triggers have a schema, a table and a body.
func withTriggers(statement string, triggers [][]string) string {
	for range triggers {
		for _, row := range triggers {
			if strings.Contains(statement, quotePair(row[0], row[1])) && !strings.Contains(statement, row[2]) {
				statement += "; " + row[2]
			}
		}
	}
	return statement
}

// forgetDumped removes the unsafe statements that are in the dump. During a backup, only one session at a time writes,
// in transactions. A statement is therefore not in the dump if all transactions of the dump were committed before it.
func (m *matrixRound) forgetDumped(dump string) {
	dumped, err := gtid.Parse(dump)
	testenv.ExpectNoError(m.t, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unsafe = slices.DeleteFunc(m.unsafe, func(s unsafeStatement) bool { return !s.executed.Contains(dumped) })
}

// endPrepared ends transactions that a refused statement left in the prepared state, because they would lock tables
// forever.
func (m *matrixRound) endPrepared(session *sql.Conn, statements []string) {
	for _, statement := range statements {
		if name, isPrepare := strings.CutPrefix(statement, "xa prepare "); isPrepare {
			_, _ = session.ExecContext(context.WithoutCancel(m.t.Context()), "xa rollback "+name) // Most of these transactions have ended.
		}
	}
}

func (m *matrixRound) countStatement(accepted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if accepted {
		m.totals.Accepted++
	} else {
		m.totals.Refused++
	}
}

func (m *matrixRound) remember(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history = append(m.history, line)
}

// keepHistory saves the statements of a round that failed.
func (m *matrixRound) keepHistory(seed uint64) {
	dir := os.Getenv("TORPOR_BENCH_DIR")
	if !m.t.Failed() && m.crash == "" || dir == "" {
		return
	}
	file := filepath.Join(dir, fmt.Sprintf("backup-soak-%d.sql", seed))
	if err := errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(file, []byte(strings.Join(m.history, "\n")), 0o600)); err != nil {
		m.t.Error(err)
	}
	m.t.Logf("the statements are in %s", file)
}

// lacksView matches the warning about a view that was omitted because it refers to a missing object. lacksVectors
// matches the warning about a column that ALTER TABLE has turned into invalid vectors. lacksRow matches the error of a
// replay that does not find a row.
var (
	lacksView    = regexp.MustCompile(`(?s)^(?:view .* is not restored: |\d+ views are not restored, )`)
	lacksVectors = regexp.MustCompile(`(?s)^rows of table (.*) are not restored, at least in part: MySQL's error 6136`)
	lacksRow     = regexp.MustCompile(`(?s)MySQL's error 1032 .*Can't find record in '([^']+)'`)
)

// restoreAndCompare restores one schema, or all schemas if schema is empty, and compares the result with the recorded
// state.
func (m *matrixRound) restoreAndCompare(want recordedState, point time.Time, schema string) {
	target := m.installation.StartServer(m.t)
	o := m.restoreOptions(target.Address)
	o.Point, o.Schema, o.Result = point, schema, filepath.Join(m.t.TempDir(), "result")
	var err error
	testenv.Eventually(m.t, "the binary logs reach the point", func() error {
		err = runner.RunRestore(m.t.Context(), o)
		return testenv.ErrorIf(err != nil && strings.Contains(err.Error(), "expected the binary logs to reach"), "found %v", err)
	})
	what := "all schemas"
	if schema != "" {
		what, want = "schema "+inBackticks(schema), want.ofSchema(schema)
	}
	if schema != "" && err != nil && strings.Contains(err.Error(), "expected binary logs that can be separated by schema") {
		m.totals.Inseparable++
		return
	}
	if schema != "" && len(want.objects) == 0 {
		return // The schema does not exist any more, so the restore is refused.
	}
	if err != nil && m.isNamedLimit(err) {
		m.t.Logf("restore of %s: a limit of docs/backup.md: %v", what, err)
		return
	}
	if err != nil {
		m.t.Errorf("restore of %s: %v", what, err)
		return
	}
	found := readState(m.t, target)
	if schema != "" {
		found = found.ofSchema(schema)
	}
	m.compare(want, found, what, o)
}

// isNamedLimit reports whether a restore fails with an error that docs/backup.md documents for the operations of this
// round.
func (m *matrixRound) isNamedLimit(err error) bool {
	text := err.Error()
	missing := lacksRow.FindStringSubmatch(text)
	var limit string
	switch {
	case missing != nil && strings.Contains(text, "MySQL's error 6136"):
		limit = "row with an invalid vector is not found"
	case missing != nil && m.isUnsafe("rows of table "+missing[1]), len(m.unsafe) > 0 && strings.Contains(text, "MySQL's error 1062"):
		limit = "unsafe statement"
	default:
		return false
	}
	m.main.count("named limit: " + limit)
	return true
}

// compare compares a restored state with the recorded one. Differences are accepted only if the restore or the backup
// reported them, or if MySQL warned about the statement.
func (m *matrixRound) compare(want, found recordedState, what string, o runner.RestoreOptions) {
	text, err := os.ReadFile(o.Result)
	testenv.ExpectNoError(m.t, err)
	result, err := backup.ParseRestoreResult(string(text))
	testenv.ExpectNoError(m.t, err)
	lacks, vectors := false, map[string]bool{}
	for _, part := range result.Warnings[:result.LeftOut] {
		vector := lacksVectors.FindStringSubmatch(part)
		switch {
		case lacksView.MatchString(part):
			lacks = true
		case vector != nil:
			vectors["rows of table "+withoutBackticks(vector[1])] = true
		default:
			m.t.Errorf("%s: expected only views to be left out, found: %s", what, part)
		}
	}
	// MySQL keeps the grants on a dropped table.
	accounts := map[string]bool{}
	for _, warning := range result.Warnings[result.LeftOut:] {
		account, _, lacksGrants := strings.Cut(warning, " lacks ")
		accounts[account] = lacksGrants
	}
	differences := want.differences(found, func(key string) bool {
		return accounts[key] || lacks && (want.broken[key] || o.Schema != "" && strings.HasPrefix(key, "view ")) || vectors[withoutBackticks(key)] || m.isUnsafe(key)
	})
	if want.gtids != found.gtids {
		differences = append(differences, "transactions\n   source: "+want.gtids+"\n   found:  "+found.gtids)
	}
	for _, difference := range differences {
		m.t.Errorf("%s: %s", what, difference)
	}
	m.totals.Compared += len(want.objects)
	m.t.Logf("%s: %d objects, left out %d", what, len(want.objects), result.LeftOut)
}

// isUnsafe reports whether the rows of a table may differ, because an unsafe statement or one of its triggers contains
// the table's name.
func (m *matrixRound) isUnsafe(key string) bool {
	table, isRows := strings.CutPrefix(key, "rows of table ")
	return isRows && slices.ContainsFunc(m.unsafe, func(s unsafeStatement) bool { return strings.Contains(s.text, table) })
}
