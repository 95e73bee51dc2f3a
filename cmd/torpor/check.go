// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	admincheck "github.com/torpor-dev/torpor/internal/admin/check"
	"github.com/torpor-dev/torpor/internal/admin/check/hub"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

const (
	// checkTimeout limits all calls of one observation together.
	checkTimeout = time.Minute
	// checkInterval is the time between two observations of --wait, and thus the shortest time between two lines of
	// progress.
	checkInterval = 2 * time.Second
	// defaultCheckWait is how long --wait waits by default.
	defaultCheckWait = 5 * time.Minute
)

// checkRun is one run of the command.
type checkRun struct {
	observe func(context.Context) (admincheck.Observed, error)
	out     io.Writer
	// progress receives a line whenever the reason for which --wait waits changes.
	progress io.Writer
	output   string
	waits    bool
	timeout  time.Duration
}

func checkCommand() *cobra.Command {
	var kubeconfig string
	o := hub.Observer{Clock: clock.RealClock{}}
	run := checkRun{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether a hub is ready for Torpor, before an installation or an upgrade, and whether an installation works; nothing is changed",
		Long: `Check whether a hub is ready for Torpor: its version and APIs, whether it can record the requesters of stops, the owner of the
CustomResourceDefinitions, whether another installation is active, the manager's Pods, your permissions, the certificate of the webhook,
whether installed policies and webhooks answer, and the clock. docs/install.md explains each check. Nothing is changed: requests that
call policies and webhooks are dry runs, which store nothing.

With --wait, the command returns when the installation works: no check fails, all Pods of the manager are ready, and the manager is active.
What it waits for is printed on stderr, at most every two seconds.

Exit codes:
  0  no check failed, including when there are warnings; with --wait, the installation works
  1  the hub could not be reached, or you may not read the objects that the checks need
  2  wrong usage
  3  timed out: with --wait, the installation does not work yet
  4  a check failed`,
		Example: `  torpor check
  torpor check --namespace torpor-system -o json

  # Install, and wait until the installation works
  torpor install --image registry.example/torpor:v1 | kubectl apply -f -
  torpor check --wait --timeout 3m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := run.validate(cmd); err != nil {
				return err
			}
			discardLibraryLogs()
			cfg, err := loadKubeconfig(kubeconfig, "hub")
			if err != nil {
				return err
			}
			o.Config = cfg
			run.observe, run.out, run.progress = o.Observe, cmd.OutOrStdout(), cmd.ErrOrStderr()
			return run.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the hub; empty uses KUBECONFIG, then the cluster in which the program runs")
	cmd.Flags().StringVar(&o.Namespace, "namespace", "torpor-system", "namespace of the installation")
	cmd.Flags().StringVarP(&run.output, "output", "o", "", "json; empty prints a table")
	cmd.Flags().BoolVar(&run.waits, "wait", false, "wait until the installation works")
	cmd.Flags().DurationVar(&run.timeout, "timeout", defaultCheckWait, "how long to wait with --wait; then the exit code is 3")
	return cmd
}

func (r *checkRun) validate(cmd *cobra.Command) error {
	switch {
	case r.output != "" && r.output != "json":
		return exit.WrongUsage("--output: expected json or nothing, found %q", r.output)
	case cmd.Flags().Changed("timeout") && !r.waits:
		return exit.WrongUsage("--timeout: expected --wait as well, found none")
	case r.waits && r.timeout <= 0:
		return exit.WrongUsage("--timeout: expected a duration above zero such as 5m, found %s", r.timeout)
	}
	return nil
}

func (r *checkRun) run(ctx context.Context) error {
	if r.waits {
		return r.wait(ctx)
	}
	_, findings, err := r.check(ctx)
	if err != nil {
		return err
	}
	if err := writeFindings(r.out, r.output, findings); err != nil {
		return err
	}
	if !admincheck.IsReady(findings) {
		return exit.Error{Code: exit.Refused, Err: errors.New("the hub is not ready for Torpor: see the failed checks")}
	}
	return nil
}

func (r *checkRun) check(ctx context.Context) (admincheck.Observed, []admincheck.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	seen, err := r.observe(ctx)
	if err != nil {
		return seen, nil, err
	}
	return seen, admincheck.Judge(seen), nil
}

// wait checks until the installation works, and prints the last findings. It also waits for an API server that does
// not answer yet.
func (r *checkRun) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	printed, missing := "", "no response from the hub"
	var last []admincheck.Finding
	err := wait.PollUntilContextCancel(ctx, checkInterval, true, func(ctx context.Context) (bool, error) {
		seen, findings, err := r.check(ctx)
		switch {
		case ctx.Err() != nil: // The wait timed out or was interrupted, so err does not concern the hub.
			return false, context.Cause(ctx)
		case err != nil:
			missing = err.Error()
		default:
			last, missing = findings, admincheck.DescribeMissing(seen, findings)
		}
		if missing != "" && missing != printed {
			printed = missing
			fmt.Fprintf(r.progress, "waiting: %s\n", missing)
		}
		return missing == "", nil
	})
	if last != nil {
		err = errors.Join(writeFindings(r.out, r.output, last), err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return exit.Error{Code: exit.TimedOut, Err: fmt.Errorf("timed out: expected an installation that works, found: %s", missing)}
	}
	return err
}

func writeFindings(out io.Writer, format string, findings []admincheck.Finding) error {
	if format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		if err := e.Encode(findings); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		text := f.Message
		if f.Remedy != "" {
			text += " (" + f.Remedy + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Check, f.State, text)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
