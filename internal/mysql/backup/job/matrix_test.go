// SPDX-License-Identifier: Apache-2.0

package job_test

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
	"github.com/torpor-dev/torpor/internal/mysql/backup/job"
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
	Inseparable int            `json:"inseparable_binary_logs"`
	Counts      map[string]int `json:"counts"`
}

// TestRandomSchemasAndSettings restores random schemas of servers with random settings to a random point in time. make
// soak NAME=backup runs more rounds.
func TestRandomSchemasAndSettings(t *testing.T) {
	totals := &matrixTotals{Counts: map[string]int{}}
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { runMatrixRound(t, seed, totals) })
	}
}

// TestSoak runs rounds with new seeds until its time has elapsed.
func TestSoak(t *testing.T) {
	if os.Getenv("TORPOR_SOAK") == "" {
		t.Skip("TORPOR_SOAK is not set: expected how long to soak, such as 20m; run make soak-backup")
	}
	long, err := time.ParseDuration(os.Getenv("TORPOR_SOAK"))
	if err != nil {
		t.Fatalf("TORPOR_SOAK: expected a duration such as 20m: %v", err)
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TORPOR_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("TORPOR_SEED: expected a number: %v", err)
		}
	}
	t.Logf("seed %d (TORPOR_SEED), for %s", seed, long)
	totals := &matrixTotals{Seed: seed, Counts: map[string]int{}}
	for end := time.Now().Add(long); time.Now().Before(end); seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { runMatrixRound(t, seed, totals) })
	}
	testenv.SaveFigures(t, "backup-soak.json", totals)
	for _, kind := range slices.Sorted(maps.Keys(totals.Counts)) {
		t.Logf("%6d %s", totals.Counts[kind], kind)
	}
	t.Logf("%d rounds, %d statements and %d that MySQL refused, %d objects compared, %d restores of one schema refused", totals.Rounds, totals.Accepted, totals.Refused, totals.Compared, totals.Inseparable)
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
	// unsafe lists the statements after the backup that the binary log contains as text although they are not
	// deterministic.
	unsafe []string
	// roundsFloats is true if the backup warned about FLOAT columns.
	roundsFloats bool
	// turn is locked while a session writes rows.
	turn sync.Mutex
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
	m.createAll()
	m.rows = newSchemaGenerator(seed, rowStream)
	m.rows.schemas, m.rows.tables = m.main.schemas, m.main.copyTables()
	m.startShipping(t, m.source.Address)
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { m.writeRows(ctx) })
	status, err := m.runBackup(t.Context(), t, m.source.Address)
	if err != nil {
		cancel()
		writing.Wait()
		t.Fatalf("backup: %v", err)
	}
	m.roundsFloats = slices.ContainsFunc(status.Warnings, func(w string) bool { return strings.Contains(w, "columns are of type FLOAT") })
	m.main.isAfterBackup = true
	const most = 16
	sessions := 2 + m.main.IntN(most)
	recordAfter := m.main.IntN(sessions)
	var state recordedState
	var point time.Time
	for i := range sessions {
		m.run(m.main.session())
		if i == recordAfter {
			state, point = m.record(status.Time.Time)
		}
	}
	cancel()
	writing.Wait()
	m.run([]string{"create schema after_the_point"})
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
		m.t.Errorf("connect to the source: %v", err)
		return
	}
	for _, statement := range statements {
		_, err := session.ExecContext(context.WithoutCancel(m.t.Context()), statement)
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

// noteUnsafe records a statement if MySQL warned that it is unsafe, because its replay may change other rows.
func (m *matrixRound) noteUnsafe(session *sql.Conn, statement string) {
	if !m.main.isAfterBackup {
		return
	}
	const unsafe = 1592
	rows, err := session.QueryContext(context.WithoutCancel(m.t.Context()), "show warnings")
	if err != nil {
		return // The server has closed the session.
	}
	defer func() { _ = rows.Close() }() // The rows were only read.
	for rows.Next() {
		var level, text string
		var number int
		if rows.Scan(&level, &number, &text) == nil && number == unsafe {
			m.mu.Lock()
			m.unsafe = append(m.unsafe, statement)
			m.mu.Unlock()
		}
	}
}

// endPrepared ends transactions that a refused statement left in the prepared state, because they would lock tables
// forever.
func (m *matrixRound) endPrepared(session *sql.Conn, statements []string) {
	for _, statement := range statements {
		if name, isPrepare := strings.CutPrefix(statement, "xa prepare "); isPrepare {
			_, _ = session.ExecContext(context.WithoutCancel(m.t.Context()), "xa rollback "+name) // Most have ended.
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
	if !m.t.Failed() || dir == "" {
		return
	}
	file := filepath.Join(dir, fmt.Sprintf("backup-soak-%d.sql", seed))
	if err := errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(file, []byte(strings.Join(m.history, "\n")), 0o600)); err != nil {
		m.t.Error(err)
	}
	m.t.Logf("the statements are in %s", file)
}

// lacksView matches the warning about a view that was omitted because it refers to a missing object. lacksVectors
// matches the warning about a column that ALTER TABLE has turned into invalid vectors.
var (
	lacksView    = regexp.MustCompile(`(?s)^(?:view .* is not restored: |\d+ views are not restored, )`)
	lacksVectors = regexp.MustCompile(`(?s)^rows of table (.*) are not restored, at least in part: MySQL's error 6136`)
)

// restoreAndCompare restores one schema, or all schemas if schema is empty, and compares the result with the recorded
// state.
func (m *matrixRound) restoreAndCompare(want recordedState, point time.Time, schema string) {
	target := m.installation.StartServer(m.t)
	o := m.restoreOptions(target.Address)
	o.Point, o.Schema, o.Result = point, schema, filepath.Join(m.t.TempDir(), "result")
	var err error
	testenv.Eventually(m.t, "the binary logs reach the point", func() error {
		err = job.RunRestore(m.t.Context(), o)
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
	const lacksRow, isDuplicate = "MySQL's error 1032", "MySQL's error 1062"
	text := err.Error()
	var limit string
	switch {
	case strings.Contains(text, lacksRow) && strings.Contains(text, "columns are of type FLOAT"):
		limit = "rounded FLOAT is not found"
	case strings.Contains(text, lacksRow) && strings.Contains(text, "MySQL's error 6136"):
		limit = "row with an invalid vector is not found"
	case len(m.unsafe) > 0 && (strings.Contains(text, lacksRow) || strings.Contains(text, isDuplicate)):
		limit = "unsafe statement"
	default:
		return false
	}
	m.main.count("named limit: " + limit)
	return true
}

// compare compares a restored state with the recorded one. Differences are accepted only if the restore or the backup
// reported them, or if MySQL warned about the statement.
func (m *matrixRound) compare(want, found recordedState, what string, o job.RestoreOptions) {
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
	if m.roundsFloats {
		want, found = want.withRoundedFloats(), found.withRoundedFloats()
	}
	differences := want.differences(found, func(key string) bool {
		return lacks && (want.broken[key] || o.Schema != "" && strings.HasPrefix(key, "view ")) || vectors[withoutBackticks(key)] || m.isUnsafe(key)
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

// isUnsafe reports whether the rows of a table may differ, because an unsafe statement contains the table's name.
func (m *matrixRound) isUnsafe(key string) bool {
	table, isRows := strings.CutPrefix(key, "rows of table ")
	return isRows && slices.ContainsFunc(m.unsafe, func(statement string) bool { return strings.Contains(statement, table) })
}
