// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/bulk"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/manager"
	"github.com/torpor-dev/torpor/internal/uninstall"
)

func uninstallCommand(out io.Writer) *cobra.Command {
	o := uninstall.Options{Editor: bulk.Editor{Out: out}, Clock: clock.RealClock{}}
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take Torpor's programs, webhooks, finalizers, Leases and Secrets out of a cluster; users' objects and CRDs stay",
		Long: `Take Torpor out of a cluster: the webhook configurations, the programs, Torpor's finalizers on users' objects, its
Leases and the Secret of its webhook, in this order. It ends within a minute, also when the manager or the webhook's Service is
gone already, and may be run again. Users' objects, what runs for them, CRDs, rights and the namespace stay; docs/uninstall.md
says how to delete those.

With --delete-crds Torpor's CRDs go too, never those of Hive, MOCO or Korifi; while there are objects of them nothing is done at
all. With --delete-objects beside it the objects are deleted as well, and what they own: Pods, and the volumes of MySQLClusters.

Exit codes: 0 when everything is gone, 1 after an error, when something may be left, 4 if there are objects and nothing was done.`,
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
			if o.DeletesObjects && !o.DeletesCRDs {
				return exit.WrongUsage("--delete-objects: expected --delete-crds beside it, found none; users' objects go only with their CRDs")
			}
			if err = uninstall.Run(cmd.Context(), o); errors.Is(err, uninstall.ErrObjectsLeft) {
				return exit.Error{Code: exit.Refused, Err: err}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty uses KUBECONFIG, then the cluster this runs in")
	f.StringVar(&o.Namespace, "namespace", "torpor-system", "namespace of the installation")
	f.BoolVar(&o.DeletesCRDs, "delete-crds", false, "also delete Torpor's CustomResourceDefinitions, if there are no objects of them")
	f.BoolVar(&o.DeletesObjects, "delete-objects", false, "with --delete-crds: also delete users' objects, with the data of databases")
	f.BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	return cmd
}
