// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/targetcluster"
)

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Make target clusters out of machines of the simulated cloud"}
	cmd.AddCommand(clusterCreateCommand())
	return cmd
}

func clusterCreateCommand() *cobra.Command {
	var c targetcluster.Config
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Run a control-plane machine and nodes, and tell the hub",
		Example: `  # Two nodes whose certificates live for one minute
  local cluster create mycluster --hub ./hub/admin.kubeconfig --cloud http://127.0.0.1:5555 --certificates 1m`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			c.Name, c.Program = args[0], program
			if c.Dir == "" {
				c.Dir = c.Name
			}
			out := cmd.OutOrStdout()
			c.Progress = func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
			r, err := targetcluster.CreateCluster(cmd.Context(), c)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "ready: cluster %s (infraID %s)\nkubeconfig: %s\n", c.Name, r.InfraID, r.Kubeconfig)
			if !r.Applied {
				fmt.Fprintf(out, "the hub does not serve ClusterDeployments yet; apply %s once it does\n", r.Manifest)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Namespace, "namespace", "default", "namespace of the ClusterDeployment")
	f.StringVar(&c.Dir, "dir", "", "folder of the machines' disks; NAME if empty")
	f.StringVar(&c.HubKubeconfig, "hub", "", "kubeconfig of the hub")
	f.StringVar(&c.Cloud, "cloud", "", "endpoint of the simulated cloud")
	f.StringVar(&c.Region, "region", "local-1", "region of the cloud")
	f.StringVar(&c.AccessKey, "access-key", "AKIALOCAL", "access key id of the cloud")
	f.StringVar(&c.Version, "version", "4.16.3", "OpenShift version that the ClusterDeployment claims")
	f.IntVar(&c.Nodes, "nodes", 2, "number of nodes")
	f.DurationVar(&c.Certificates, "certificates", time.Hour, "how long the nodes' certificates are valid")
	f.DurationVar(&c.Heartbeat, "heartbeat", 3*time.Second, "interval of the nodes' heartbeats")
	f.StringVar(&c.HoldFile, "hold-file", "", "nodes whose machines are switched on wait for as long as this file exists")
	return cmd
}
