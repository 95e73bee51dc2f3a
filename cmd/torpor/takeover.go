// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/internal/bulk"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/manager"
	"github.com/torpor-dev/torpor/internal/takeover"
)

func takeOverCommand(out io.Writer) *cobra.Command {
	e := bulk.Editor{Out: out}
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "take-over-korifi",
		Short: "Hand the orgs, spaces and apps of an uninstalled Korifi to Torpor",
		Long: `Hand the orgs, spaces and apps that Korifi has made to Torpor. Korifi's controllers have to be stopped before, and its webhook
configurations deleted: this command refuses to begin while they are there, and says what to type.

It gives the users of Korifi's roles those of Torpor, marks every object as Torpor's to handle, takes Korifi's
finalizers off, and deletes its AppWorkloads and StatefulSets, in this order. An app is down from then until Torpor's own Pods are
ready. Names, revisions, droplets, environments and processes stay. What Torpor does not know, such as service instances, stays
without its finalizers. It prints a line for each object and may be run again.

Exit codes: 0 when everything is handed over, 1 after an error, when something may be left, 4 if Korifi is still there and nothing
was done.`,
		Example: `  torpor take-over-korifi --dry-run
  torpor take-over-korifi`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadKubeconfig(kubeconfig, "cluster")
			if err != nil {
				return err
			}
			if e.Client, err = manager.NewClient(cfg); err != nil {
				return err
			}
			if err = takeover.FromKorifi(cmd.Context(), e); errors.Is(err, takeover.ErrUpstreamRuns) {
				return exit.Error{Code: exit.Refused, Err: err}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty uses KUBECONFIG, then the cluster this runs in")
	f.BoolVar(&e.DryRun, "dry-run", false, "only say what would be done")
	return cmd
}
