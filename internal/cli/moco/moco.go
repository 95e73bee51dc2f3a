// SPDX-License-Identifier: Apache-2.0

// Package moco is the plugin `kubectl moco`: people say what of a MySQLCluster should stop or start, and see what does.
// It writes annotations and reads statuses; controllers do the rest. Its specification is testdata/*.txtar.
package moco

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/cli/exit"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// app is what every command has.
type app struct {
	Streams
	clock   clock.WithTicker
	connect func() (*hub, error)
}

// Run runs a command line without the program's name, and returns the exit code that the help lists.
func Run(ctx context.Context, args []string, s Streams) int {
	a := &app{Streams: s, clock: clock.RealClock{}}
	root := a.rootCommand()
	// What goes wrong before a command runs is the command line.
	begun := false
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	if err != nil && !begun {
		err = exit.WrongUsage("%w; see kubectl moco --help", err)
	}
	for _, each := range exit.Separate(err) {
		if text := each.Error(); text != "" {
			fmt.Fprintln(s.Err, "error:", text)
		}
	}
	return int(exit.CodeOf(err))
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:         "kubectl-moco",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl moco"},
		Short:       "Stop, start and look at MySQLClusters",
		Long: `Stop and start the clustering or the reconciliation of MySQLClusters, and see what is stopped, since when and why.

Exit codes:
  0  done, also if there was nothing to do
  1  failed
  2  wrong usage
  3  timed out: it is asked for, but not reached yet
  4  refused: it would do harm; nothing was changed
mysql returns what the program mysql returns.`,
		Example: `  # Stop clustering for some minutes, and return when nothing changes an instance any more
  kubectl moco stop clustering test --reason "compare replicas" --until 40m --wait

  # What is stopped, since when, why, and what now
  kubectl moco status

  # Let it go on
  kubectl moco start clustering test --wait`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	a.connect = connector(root.PersistentFlags(), a.Err)
	root.AddCommand(a.stopCommand(), a.startCommand(), a.statusCommand(), a.switchoverCommand(), a.mysqlCommand(), a.credentialCommand())
	return root
}

// group is a command that only has commands below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, c := range below {
			names = append(names, c.Name())
		}
		return exit.WrongUsage("expected one of %q after %q, found %q; see %s --help", names, cmd.Name(), args, cmd.CommandPath())
	}}
	cmd.AddCommand(below...)
	return cmd
}
