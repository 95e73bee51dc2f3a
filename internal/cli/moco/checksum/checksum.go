// SPDX-License-Identifier: Apache-2.0

// Package checksum compares the rows of MySQL servers at one GTID set, through the mysql client.
package checksum

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// snapshotTries limits the attempts to open snapshots of all instances at one GTID set. snapshotPause is the
	// time between two attempts.
	snapshotTries = 20
	snapshotPause = 250 * time.Millisecond
)

// TableComparison compares the instances of one cluster.
type TableComparison struct {
	// Out receives a line for each table that differs or cannot be compared, and a summary.
	Out   io.Writer
	Clock clock.WithTicker
	// RunMysql runs the mysql client in the Pod of the instance with the ordinal, until its input ends.
	RunMysql func(ctx context.Context, ordinal int, args []string, in io.Reader, out io.Writer) error
}

// CompareInstances returns an error if rows differ or cannot be compared.
func (p TableComparison) CompareInstances(ctx context.Context, n int) error {
	var sessions []*instanceSession
	for i := range n {
		s := p.openSession(ctx, i)
		defer s.close()
		sessions = append(sessions, s)
	}
	versions, err := queryAll(sessions, "select substring_index(@@version, '.', 2)")
	if err != nil {
		return err
	}
	if !areEqual(versions) {
		return fmt.Errorf("cannot compare: expected one version of MySQL, found %q, whose checksums of equal rows may differ", versions)
	}
	at, err := p.openSnapshots(ctx, sessions)
	if err != nil {
		return err
	}
	return p.compareTables(sessions, at)
}

// openSnapshots opens a transaction in every instance, such that all see the same GTID set, and returns this set.
func (p TableComparison) openSnapshots(ctx context.Context, sessions []*instanceSession) (string, error) {
	const executed = `select replace(@@global.gtid_executed, '\n', '')`
	tick := p.Clock.NewTicker(snapshotPause)
	defer tick.Stop()
	var before, after []string
	for range snapshotTries {
		var err error
		if before, err = queryAll(sessions, executed); err != nil {
			return "", err
		}
		if _, err = queryAll(sessions, "rollback; set session transaction isolation level repeatable read; start transaction with consistent snapshot, read only"); err != nil {
			return "", err
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			return "", fmt.Errorf("compare instances: %w", context.Cause(ctx))
		}
		// Rows of a transaction are visible shortly before the server adds it to gtid_executed.
		if after, err = queryAll(sessions, executed); err != nil {
			return "", err
		}
		if areEqual(after) && slices.Equal(before, after) {
			return after[0], nil
		}
	}
	return "", fmt.Errorf("cannot compare: expected all instances at one GTID set, found %q; let the replicas catch up, or stop writing for a moment", after)
}

func (p TableComparison) compareTables(sessions []*instanceSession, at string) error {
	const tables = `select concat('` + "`" + `', replace(table_schema, '` + "`', '``" + `'), '` + "`.`" + `', replace(table_name, '` + "`', '``" + `'), '` + "`" + `', '\t', ifnull(engine, 'none'))
		from information_schema.tables where table_type = 'BASE TABLE' and table_schema not in ('mysql', 'sys', 'performance_schema', 'information_schema')`
	lists, err := queryEach(sessions, tables)
	if err != nil {
		return err
	}
	owners := map[string]int{}
	for _, list := range lists {
		for _, line := range list {
			owners[line]++
		}
	}
	compared, wrong := 0, 0
	for _, line := range slices.Sorted(maps.Keys(owners)) {
		table, engine, _ := strings.Cut(line, "\t")
		switch {
		case engine != "InnoDB":
			wrong++
			fmt.Fprintf(p.Out, "%s: cannot be compared: its engine is %s\n", table, engine)
			continue
		case owners[line] < len(sessions):
			wrong++
			fmt.Fprintf(p.Out, "%s: is in %d of %d instances\n", table, owners[line], len(sessions))
			continue
		}
		sums, err := queryAll(sessions, "checksum table "+table)
		if err != nil {
			return err
		}
		compared++
		if !areEqual(sums) {
			wrong++
			fmt.Fprintf(p.Out, "%s: differs:%s\n", table, formatChecksums(sums))
		}
	}
	fmt.Fprintf(p.Out, "compared %d tables of %d instances at %s\n", compared, len(sessions), at)
	if wrong > 0 {
		return fmt.Errorf("expected equal rows, found %d tables that differ or cannot be compared", wrong)
	}
	return nil
}

func formatChecksums(lines []string) string {
	var said strings.Builder
	for i, line := range lines {
		_, sum, _ := strings.Cut(line, "\t")
		fmt.Fprintf(&said, " instance %d has %s", i, sum)
	}
	return said.String()
}

func areEqual(all []string) bool { return len(slices.Compact(slices.Clone(all))) <= 1 }

// queryAll runs a statement in all sessions concurrently, and returns the result of each session as one text, which may
// be empty.
func queryAll(sessions []*instanceSession, statement string) ([]string, error) {
	answers, err := queryEach(sessions, statement)
	lines := make([]string, len(answers))
	for i, answer := range answers {
		lines[i] = strings.Join(answer, "\n")
	}
	return lines, err
}

func queryEach(sessions []*instanceSession, statement string) ([][]string, error) {
	answers, failures := make([][]string, len(sessions)), make([]error, len(sessions))
	var all sync.WaitGroup
	for i, s := range sessions {
		all.Go(func() { answers[i], failures[i] = s.queryLines(statement) })
	}
	all.Wait()
	return answers, errors.Join(failures...)
}

// instanceSession is a session with one instance through the mysql client, which reads statements and writes lines.
type instanceSession struct {
	ordinal int
	in      *io.PipeWriter
	out     *bufio.Reader
	queries int
	ended   chan error
}

// openSession starts a session, which ends with ctx or by close.
func (p TableComparison) openSession(ctx context.Context, ordinal int) *instanceSession {
	input, in := io.Pipe()
	out, output := io.Pipe()
	d := &instanceSession{ordinal: ordinal, in: in, out: bufio.NewReader(out), ended: make(chan error, 1)}
	go func() {
		err := p.RunMysql(ctx, ordinal, []string{"--batch", "--skip-column-names", "--raw", "--unbuffered"}, input, output)
		d.ended <- err
		ended := errors.New("the program mysql has ended")
		_ = input.CloseWithError(ended) // CloseWithError never returns an error.
		_ = output.CloseWithError(ended)
	}()
	return d
}

func (d *instanceSession) queryLines(statement string) ([]string, error) {
	d.queries++
	end := fmt.Sprintf("answer %d ends", d.queries)
	if _, err := fmt.Fprintf(d.in, "%s;\nselect '%s';\n", statement, end); err != nil {
		return nil, d.explainEnd(err)
	}
	var lines []string
	for {
		line, err := d.out.ReadString('\n')
		if err != nil {
			return nil, d.explainEnd(err)
		}
		line = strings.TrimSuffix(line, "\n")
		if line == end {
			return lines, nil
		}
		lines = append(lines, line)
	}
}

func (d *instanceSession) explainEnd(err error) error {
	select {
	case ended := <-d.ended:
		err = errors.Join(err, ended)
	default:
	}
	return fmt.Errorf("cannot compare: instance %d: %w", d.ordinal, err)
}

func (d *instanceSession) close() { _ = d.in.Close() } // Close always succeeds.
