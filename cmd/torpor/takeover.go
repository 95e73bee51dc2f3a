// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/internal/admin/korifihandover"
	"github.com/torpor-dev/torpor/internal/admin/objecteditor"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/manager"
)

func takeOverCommand(out io.Writer) *cobra.Command {
	e := objecteditor.Editor{Out: out}
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "take-over-korifi",
		Short: "Hand the orgs, spaces and apps of an uninstalled Korifi to Torpor",
		Long: `Hand over the orgs, spaces and apps that Korifi created to Torpor. Stop Korifi's controllers and delete its webhook configurations
first: until then, this command changes nothing, and prints the commands to run.

It binds the users of Korifi's roles, except admins, to Torpor's roles, annotates the objects of the kinds that Torpor handles,
removes Korifi's finalizers, and deletes its AppWorkloads and StatefulSets, in this order. An app is down from then until Torpor's
Pods are ready. Names, revisions, droplets, environments and processes are kept. Objects that Torpor does not support, such as managed
service instances, are kept without finalizers. It prints a line for each changed object, and can be run again.

Exit codes: 0 if everything is handed over, 1 after an error, when objects may be left, 4 if Korifi is still active and nothing
was changed.`,
		Example: `  torpor take-over-korifi --dry-run
  torpor take-over-korifi`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			discardLibraryLogs()
			cfg, err := loadKubeconfig(kubeconfig, "cluster")
			if err != nil {
				return err
			}
			if e.Client, err = manager.NewClient(cfg); err != nil {
				return err
			}
			if err = korifihandover.FromKorifi(cmd.Context(), e); errors.Is(err, korifihandover.ErrUpstreamRuns) {
				return exit.Error{Code: exit.Refused, Err: err}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty uses KUBECONFIG, then the cluster in which the program runs")
	f.BoolVar(&e.DryRun, "dry-run", false, "only print what would change")
	return cmd
}
