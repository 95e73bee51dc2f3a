// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/manager"
	"github.com/torpor-dev/torpor/internal/uninstall"
)

func uninstallCommand(out io.Writer) *cobra.Command {
	o := uninstall.Options{Clock: clock.RealClock{}, Out: out}
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take Torpor's programs, webhooks, finalizers, Leases and Secrets out of a cluster; users' objects and CRDs stay",
		Long: `Take Torpor out of a cluster: the webhook configurations, the programs, Torpor's finalizers on users' objects, its
Leases and the Secret of its webhook, in this order. It ends within a minute, also when the manager or the webhook's Service is
gone already, and may be run again. Users' objects, what runs for them, CRDs, rights and the namespace stay; docs/uninstall.md
says how to delete those.

Exit codes: 0 when everything is gone, 1 after an error, when something may be left.`,
		Example: `  torpor uninstall --dry-run
  torpor uninstall --namespace torpor-system`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadKubeconfig(kubeconfig, "cluster")
			if err != nil {
				return err
			}
			if o.Client, err = manager.NewClient(cfg); err != nil {
				return err
			}
			return uninstall.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty uses KUBECONFIG, then the cluster this runs in")
	f.StringVar(&o.Namespace, "namespace", "torpor-system", "namespace of the installation")
	f.BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	return cmd
}
