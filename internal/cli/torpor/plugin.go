// SPDX-License-Identifier: Apache-2.0

// Package torpor implements the plugin `kubectl torpor`. It shows which objects of any kind are stopped, by whom, why
// and until when, and it stops and starts objects. testdata/*.txtar specify its behaviour.
package torpor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	programName = "kubectl-torpor"
	// commandTimeout limits the total time of a command, in addition to the timeout of each request. --wait and
	// namespaces extend it, and --watch removes it.
	commandTimeout = 5 * time.Minute
)

// Streams are the outputs of a command.
type Streams struct{ Out, Err io.Writer }

type commands struct {
	Streams
	clock   clock.PassiveClock
	connect func() (*kubeClient, error)
}

// Run runs a command line, without the program's name, and returns one of the exit codes that the help lists.
func Run(ctx context.Context, s Streams, args []string) int {
	s = Streams{Out: fitToTerminal(s.Out), Err: fitToTerminal(s.Err)}
	defer flushOutputs(s.Out, s.Err)
	a := &commands{Streams: s, clock: clock.RealClock{}}
	root := a.newRootCommand()
	commandStarted := false
	// An error that occurs before a command starts is a usage error.
	root.PersistentPreRun = func(*cobra.Command, []string) { commandStarted = true }
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !commandStarted {
		err = exit.WrongUsage("%w; see kubectl torpor --help", err)
	}
	for _, each := range exit.SplitErrors(err) {
		fmt.Fprintln(s.Err, "error:", each)
	}
	return int(exit.CodeOf(err))
}

// The flags that change the time limit of a command.
const (
	waitFlag, timeoutFlag = "wait", "timeout"
	watchFlag             = "watch"
)

// limitCommand returns the context of a command, with the command's time limit.
func limitCommand(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	if limit := commandLimit(cmd.Flags()); limit > 0 {
		return context.WithTimeout(cmd.Context(), limit)
	}
	return context.WithCancel(cmd.Context())
}

// commandLimit returns the time limit of a command, or 0 for a watch, which has no limit.
func commandLimit(f *pflag.FlagSet) time.Duration {
	if watches, err := f.GetBool(watchFlag); err == nil && watches {
		return 0
	}
	timeout, err := f.GetDuration(timeoutFlag)
	if waits, _ := f.GetBool(waitFlag); err != nil || !waits {
		return commandTimeout
	}
	return commandTimeout + timeout
}

func (a *commands) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:         programName,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl torpor"},
		Short:       "Stop and start objects; show stopped objects with the requester, the reason and the end",
		Long: `Stop and start ` + strings.Join(kinds.ListBuiltIn().Plurals(), ", ") + ` and the kinds of StopAdapters; show
which objects are stopped, by whom, why and until when.

Objects are named as kubectl names them: cfapp/shop, or cfapp shop cart, or deployment.apps/web as kubectl get -o name prints it. A kind is named by its short name, singular or plural; a kind of a StopAdapter also by the name of the StopAdapter, such as
clusters.postgresql.cnpg.io. A CFApp is named by its display name or its GUID.

Exit codes:
  0  done, also if there was nothing to do
  1  failed
  2  wrong usage; nothing was changed
  3  timed out: the request was written, but its effect was not reached yet
  4  refused: the change would do harm, or make no sense`,
		Example: `  # List the stoppable objects of this namespace, and of all namespaces
  kubectl torpor status
  kubectl torpor status -A

  # Stop an app for the night, and start it again
  kubectl torpor stop cfapp/shop --reason "no budget" --until 10h
  kubectl torpor start cfapp/shop
  kubectl torpor stop deployment/web --reason "no budget" --until 2h

  # Show the effects of a stop and the problems that may affect it
  kubectl torpor plan clusterdeployment/fleet --until 60h

  # Show who stopped an object, why, until when, and the next step
  kubectl torpor why mysqlcluster/test

  # List the earlier stops and starts of an object
  kubectl torpor history cfapp/shop`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	load := connection.AddFlags(root, programName, a.Err)
	a.connect = func() (*kubeClient, error) {
		cfg, namespace, err := load()
		if err != nil {
			return nil, err
		}
		return newKubeClient(cfg, namespace)
	}
	root.AddCommand(
		a.newStatusCommand(), a.newWhyCommand(), a.newPlanCommand(), a.newHistoryCommand(),
		a.newStopCommand(), a.newStartCommand(), a.newExtendCommand(), a.newSkipCommand(), a.newHibernateCommand(), a.newResumeCommand(), a.newRestartCommand(),
		a.newSlumberCommand(), a.newPageCommand(), a.newVersionCommand(),
	)
	return root
}

// validateOutput returns an error for a format that the command does not support.
func validateOutput(format string, supported ...string) error {
	if format == "" || slices.Contains(supported, format) {
		return nil
	}
	return exit.WrongUsage("--output: expected %s or nothing, found %q", strings.Join(supported, ", "), format)
}

// writeData prints data for programs.
func (a *commands) writeData(format string, data any) error {
	text, err := json.MarshalIndent(data, "", "  ")
	if format == "yaml" {
		text, err = yaml.Marshal(data)
	} else {
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	if _, err := unfitted(a.Out).Write(text); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// writeAligned prints lines with cells separated by tabs.
func (a *commands) writeAligned(lines []string) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 3, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
