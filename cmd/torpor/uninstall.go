// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/admin/objecteditor"
	"github.com/torpor-dev/torpor/internal/admin/uninstall"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/manager"
)

func uninstallCommand(out io.Writer) *cobra.Command {
	o := uninstall.Options{Editor: objecteditor.Editor{Out: out}, Clock: clock.RealClock{}}
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Torpor's workloads, webhooks, finalizers, Leases and Secrets from a cluster; users' objects and CRDs are kept",
		Long: `Remove Torpor from a cluster: the webhook configurations, its workloads, its finalizers on users' objects, its Leases and the
Secret of its webhook, in this order. Without --delete-crds it ends within a minute, even if the manager or the webhook's Service
is already gone. It can be run again. Users' objects, the workloads that run for them, CRDs, RBAC and the namespace are kept;
docs/uninstall.md explains how to delete them.

With --delete-crds, Torpor's CRDs are deleted as well, but never those of Hive, MOCO or Korifi. If objects of these kinds exist,
the command changes nothing, unless --delete-objects is set: then the objects are deleted with everything that they own, including
Pods and the volumes of MySQLClusters.

Exit codes: 0 if everything is removed, 1 after an error, when objects may be left, 4 if objects exist and nothing was changed.`,
		Example: `  torpor uninstall --dry-run
  torpor uninstall --namespace torpor-system`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			discardLibraryLogs()
			cfg, err := loadKubeconfig(kubeconfig, "cluster")
			if err != nil {
				return err
			}
			if o.Client, err = manager.NewClient(cfg); err != nil {
				return err
			}
			if o.DeletesObjects && !o.DeletesCRDs {
				return exit.WrongUsage("--delete-objects: expected --delete-crds with it, found none; users' objects are deleted only with their CRDs")
			}
			if err = uninstall.Run(cmd.Context(), o); errors.Is(err, uninstall.ErrObjectsLeft) {
				return exit.Error{Code: exit.Refused, Err: err}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty uses KUBECONFIG, then the cluster in which the program runs")
	f.StringVar(&o.Namespace, "namespace", "torpor-system", "namespace of the installation")
	f.BoolVar(&o.DeletesCRDs, "delete-crds", false, "also delete Torpor's CustomResourceDefinitions, if no objects of these kinds exist")
	f.BoolVar(&o.DeletesObjects, "delete-objects", false, "with --delete-crds: also delete users' objects, including the data of databases")
	f.BoolVar(&o.DryRun, "dry-run", false, "only print what would change")
	return cmd
}
