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
	"k8s.io/utils/clock"

	admincheck "github.com/torpor-dev/torpor/internal/admin/check"
	"github.com/torpor-dev/torpor/internal/admin/check/hub"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

// checkTimeout limits all calls together.
const checkTimeout = time.Minute

func checkCommand() *cobra.Command {
	var kubeconfig, output string
	o := hub.Observer{Clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether a hub is ready for Torpor, before an installation or an upgrade; nothing is changed",
		Long: `Check whether a hub is ready for Torpor: its version and APIs, whether it can record the requesters of stops, the owner of the
CustomResourceDefinitions, whether another installation is active, your permissions, the certificate of the webhook, and the
clock. docs/install.md explains each check. Nothing is changed.

Exit codes: 0 if no check failed, including when there are warnings; 4 if a check failed; 1 if the hub could not be reached.`,
		Example: `  torpor check
  torpor check --namespace torpor-system -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return exit.WrongUsage("--output: expected json or nothing, found %q", output)
			}
			cfg, err := loadKubeconfig(kubeconfig, "hub")
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout)
			defer cancel()
			o.Config = cfg
			seen, err := o.Observe(ctx)
			if err != nil {
				return err
			}
			findings := admincheck.Judge(seen)
			if err := writeFindings(cmd.OutOrStdout(), output, findings); err != nil {
				return err
			}
			if !admincheck.IsReady(findings) {
				return exit.Error{Code: exit.Refused, Err: errors.New("the hub is not ready for Torpor: see what failed")}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the hub; empty uses KUBECONFIG, then the cluster this runs in")
	cmd.Flags().StringVar(&o.Namespace, "namespace", "torpor-system", "namespace of the installation")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json; empty prints a table")
	return cmd
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
