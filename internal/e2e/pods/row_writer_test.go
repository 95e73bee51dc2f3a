// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// tryLimit is how long a client waits for one acknowledgement before it tries with a new connection.
	tryLimit      = time.Second
	writeInterval = 50 * time.Millisecond
)

// rowWriter writes rows with unique numbers through the Service of the primary, one after the other, and remembers which of
// them were acknowledged.
type rowWriter struct {
	db   *sql.DB
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	acked []int
	last  time.Time
	gap   time.Duration
	// problem is what became of the last row that was not acknowledged.
	problem error
}

// startRowWriter reaches the Service from the machine around the node, as a program in the cluster would.
func startRowWriter(t *testing.T, e *podsEnv, cluster string) *rowWriter {
	t.Helper()
	cfg := mysql.NewConfig()
	cfg.Net, cfg.DBName = "tcp", "app"
	cfg.Addr = e.kubectl(t, "get", "service", "moco-"+cluster+"-primary", "-o", "jsonpath={.spec.clusterIP}") + ":3306"
	cfg.User, cfg.Passwd = "moco-writable", e.kubectl(t, "moco", "credential", "-u", "moco-writable", cluster)
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout, cfg.RejectReadOnly = tryLimit, tryLimit, tryLimit, true
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &rowWriter{db: sql.OpenDB(connector), stop: cancel, last: time.Now()}
	c.done.Go(func() { c.write(ctx) })
	return c
}

func (c *rowWriter) write(ctx context.Context) {
	tick := time.NewTicker(writeInterval)
	defer tick.Stop()
	for number := 1; ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		try, cancel := context.WithTimeout(ctx, tryLimit)
		_, err := c.db.ExecContext(try, "INSERT INTO app.written VALUES (?)", number)
		cancel()
		c.recordAnswer(number, err)
	}
}

func (c *rowWriter) recordAnswer(number int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.problem = err
		return
	}
	c.gap = max(c.gap, time.Since(c.last))
	c.acked, c.last = append(c.acked, number), time.Now()
}

// acknowledged are the numbers that were acknowledged so far.
func (c *rowWriter) acknowledged() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.acked)
}

// expectMoreThan returns nil when there are more acknowledgements than before.
func (c *rowWriter) expectMoreThan(before int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.acked) > before {
		return nil
	}
	return fmt.Errorf("expected more than %d acknowledgements, found none; the last problem: %w", before, c.problem)
}

// longestGap returns how long the clients had to do without an acknowledgement since they were asked last.
func (c *rowWriter) longestGap() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := max(c.gap, time.Since(c.last))
	c.gap = 0
	return longest.Round(time.Millisecond)
}

func (c *rowWriter) stopWriting() {
	c.stop()
	c.done.Wait()
	_ = c.db.Close() // It was used already.
}

// missingNumbers are the numbers that are not among the rows, one number a line.
func missingNumbers(t *testing.T, numbers []int, rows string) []int {
	t.Helper()
	there := map[int]bool{}
	for field := range strings.FieldsSeq(rows) {
		number, err := strconv.Atoi(field)
		if err != nil {
			t.Fatalf("expected numbers, found %q", field)
		}
		there[number] = true
	}
	return slices.DeleteFunc(slices.Clone(numbers), func(number int) bool { return there[number] })
}

// query runs statements in an instance, as a DBA does.
func (e *podsEnv) query(t *testing.T, cluster string, index int, statements ...string) string {
	t.Helper()
	out, err := e.tryQuery(t, cluster, index, statements...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (e *podsEnv) tryQuery(t *testing.T, cluster string, index int, statements ...string) (string, error) {
	t.Helper()
	args := []string{"moco", "mysql", "-u", "moco-admin", "--index", strconv.Itoa(index), cluster, "--", "-Nr", "-e", strings.Join(statements, "; ")}
	return e.tryRun(t, "", e.programs+"/kubectl", args...)
}

// expectEqualRows waits until all instances have the same rows, which needs that no client writes.
func (e *podsEnv) expectEqualRows(t *testing.T, cluster, table string, instances int) {
	t.Helper()
	eventually(t, "the rows of "+table+" are equal", func() error {
		var sums []string
		for i := range instances {
			sum, err := e.tryQuery(t, cluster, i, "CHECKSUM TABLE "+table)
			if err != nil {
				return err
			}
			sums = append(sums, sum)
		}
		if distinct := slices.Compact(sums); len(distinct) != 1 || strings.HasSuffix(distinct[0], "NULL") {
			return fmt.Errorf("expected equal checksums, found %q", sums)
		}
		return nil
	})
}
