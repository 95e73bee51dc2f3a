// SPDX-License-Identifier: Apache-2.0

// Package moco is the plugin `kubectl moco`, with which people stop and start parts of MySQLClusters and look at them. It
// writes annotations and reads statuses; controllers do the rest. Its specification is testdata/*.txtar.
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

// commands is what all commands share.
type commands struct {
	Streams
	clock   clock.WithTicker
	connect func() (*kubeClient, error)
}

// Plugin is the command line.
type Plugin struct {
	root           *cobra.Command
	stderr         io.Writer
	commandStarted bool
}

// NewPlugin returns the plugin with these streams.
func NewPlugin(s Streams) *Plugin {
	a := &commands{Streams: s, clock: clock.RealClock{}}
	p := &Plugin{root: a.newRootCommand(), stderr: s.Err}
	// An error before a command runs is one of the command line.
	p.root.PersistentPreRun = func(*cobra.Command, []string) { p.commandStarted = true }
	p.root.SetIn(s.In)
	p.root.SetOut(s.Out)
	p.root.SetErr(s.Err)
	return p
}

// Run runs a command line without the program's name, and returns the exit code that the help lists.
func (p *Plugin) Run(ctx context.Context, args []string) int {
	p.root.SetArgs(args)
	err := p.root.ExecuteContext(ctx)
	if err != nil && !p.commandStarted {
		err = exit.WrongUsage("%w; see kubectl moco --help", err)
	}
	for _, each := range exit.SplitErrors(err) {
		if text := each.Error(); text != "" {
			fmt.Fprintln(p.stderr, "error:", text)
		}
	}
	return int(exit.CodeOf(err))
}

func (a *commands) newRootCommand() *cobra.Command {
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
	a.connect = newConnector(root.PersistentFlags(), a.Err)
	root.AddCommand(a.newStopCommand(), a.newStartCommand(), a.newStatusCommand(), a.newSwitchoverCommand(), a.newMysqlCommand(), a.newCredentialCommand(), a.newChecksumCommand())
	return root
}

// newGroupCommand is a command that only has commands below it.
func newGroupCommand(use, short string, below ...*cobra.Command) *cobra.Command {
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
