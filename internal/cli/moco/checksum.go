// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

const (
	checksumTimeout = 10 * time.Minute
	// snapshotTries is how often all instances are asked for their rows at one GTID set, every snapshotPause.
	snapshotTries = 20
	snapshotPause = 250 * time.Millisecond
)

func (a *app) checksumCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "checksum NAME",
		Short: "Compare the rows of all instances at one GTID set",
		Long: `Compare the rows of all instances at one GTID set, since equal GTIDs do not prove equal rows.
It only reads, as moco-readonly: it opens a snapshot in every instance, and if all of them have executed the same
transactions it runs CHECKSUM TABLE on every InnoDB table of users, one after the other. Meanwhile the instances have
to read all rows, and changes of those tables' definitions wait. If it is interrupted, a server ends the table that it
has begun.
It cannot compare instances that do not answer, instances that never are at one GTID set, different versions of MySQL,
and tables of other engines; it says so, and the exit code is 1 then, as it is if rows differ.`,
		Example: `  # After GTIDs were moved by hand, before clustering starts again
  kubectl moco checksum test`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return exit.WrongUsage("--timeout: expected a duration above zero such as 10m, found %s", timeout)
			}
			h, err := a.connect()
			if err != nil {
				return err
			}
			c, err := h.cluster(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			p := &probe{app: a, run: func(ctx context.Context, i int, args []string, in io.Reader, out io.Writer) error {
				return a.runClient(ctx, h, podName(c.Name, i), args, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: a.Err})
			}}
			return p.compare(ctx, int(c.Spec.Replicas))
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", checksumTimeout, "how long it may take")
	return cmd
}

// runClient runs the program mysql in a pod.
func (a *app) runClient(ctx context.Context, h *hub, pod string, args []string, o remotecommand.StreamOptions) error {
	command := (&session{app: a, user: defaultUser}).command(args)
	executor, err := h.executor(pod, &corev1.PodExecOptions{Container: mocov1beta2.MysqldContainer, Command: command, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	if err := executor.StreamWithContext(ctx, o); err != nil {
		return fmt.Errorf("run mysql in pod %s: %w", pod, err)
	}
	return nil
}

// probe compares instances. run runs the program mysql beside the one with the ordinal until its input ends.
type probe struct {
	*app
	run func(ctx context.Context, ordinal int, args []string, in io.Reader, out io.Writer) error
}

func (p *probe) compare(ctx context.Context, n int) error {
	var sessions []*dialogue
	for i := range n {
		s := p.open(ctx, i)
		defer s.close()
		sessions = append(sessions, s)
	}
	versions, err := askAll(sessions, "select substring_index(@@version, '.', 2)")
	if err != nil {
		return err
	}
	if !same(versions) {
		return fmt.Errorf("cannot compare: expected one version of MySQL, found %q; their checksums of equal rows may differ", versions)
	}
	at, err := p.snapshot(ctx, sessions)
	if err != nil {
		return err
	}
	return p.report(sessions, at)
}

// snapshot opens transactions that see what the same GTID set has made. A server shows rows a moment before it counts
// their transaction, so that the set is read again after a pause.
func (p *probe) snapshot(ctx context.Context, sessions []*dialogue) (string, error) {
	const executed = `select replace(@@global.gtid_executed, '\n', '')`
	tick := p.clock.NewTicker(snapshotPause)
	defer tick.Stop()
	var before, after []string
	for range snapshotTries {
		var err error
		if before, err = askAll(sessions, executed); err != nil {
			return "", err
		}
		if _, err = askAll(sessions, "rollback; set session transaction isolation level repeatable read; start transaction with consistent snapshot, read only"); err != nil {
			return "", err
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			return "", fmt.Errorf("compare instances: %w", context.Cause(ctx))
		}
		if after, err = askAll(sessions, executed); err != nil {
			return "", err
		}
		if same(after) && slices.Equal(before, after) {
			return after[0], nil
		}
	}
	return "", fmt.Errorf("cannot compare: expected all instances at one GTID set, found %q; let the replicas catch up, or stop writing for a moment", after)
}

// report compares table by table.
func (p *probe) report(sessions []*dialogue, at string) error {
	const tables = `select concat('` + "`" + `', replace(table_schema, '` + "`', '``" + `'), '` + "`.`" + `', replace(table_name, '` + "`', '``" + `'), '` + "`" + `', '\t', ifnull(engine, 'none'))
		from information_schema.tables where table_type = 'BASE TABLE' and table_schema not in ('mysql', 'sys', 'performance_schema', 'information_schema')`
	lists, err := askEach(sessions, tables)
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
		sums, err := askAll(sessions, "checksum table "+table)
		if err != nil {
			return err
		}
		compared++
		if !same(sums) {
			wrong++
			fmt.Fprintf(p.Out, "%s: differs:%s\n", table, sumsOf(sums))
		}
	}
	fmt.Fprintf(p.Out, "compared %d tables of %d instances at %s\n", compared, len(sessions), at)
	if wrong > 0 {
		return fmt.Errorf("expected equal rows, found %d tables that differ or cannot be compared", wrong)
	}
	return nil
}

func sumsOf(lines []string) string {
	var said strings.Builder
	for i, line := range lines {
		_, sum, _ := strings.Cut(line, "\t")
		fmt.Fprintf(&said, " instance %d has %s", i, sum)
	}
	return said.String()
}

func same(all []string) bool { return len(slices.Compact(slices.Clone(all))) <= 1 }

// askAll asks all sessions at once for one line each; a statement without an answer has an empty one.
func askAll(sessions []*dialogue, statement string) ([]string, error) {
	answers, err := askEach(sessions, statement)
	lines := make([]string, len(answers))
	for i, answer := range answers {
		lines[i] = strings.Join(answer, "\n")
	}
	return lines, err
}

func askEach(sessions []*dialogue, statement string) ([][]string, error) {
	answers, failures := make([][]string, len(sessions)), make([]error, len(sessions))
	var all sync.WaitGroup
	for i, s := range sessions {
		all.Go(func() { answers[i], failures[i] = s.ask(statement) })
	}
	all.Wait()
	return answers, errors.Join(failures...)
}
