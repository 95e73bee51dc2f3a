// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/controlplane"
)

func controlPlaneCommand() *cobra.Command {
	var c controlplane.Config
	cmd := &cobra.Command{
		Use:   "control-plane",
		Short: "Run etcd, kube-apiserver, kube-controller-manager and kube-scheduler in one process",
		Example: `  # A hub with its data in ./hub; prints where its kubeconfig is once it serves
  local control-plane --dir ./hub

  # A cluster whose nodes' certificates live for 90 seconds
  local control-plane --dir ./target --signing-duration 90s --approve-serving`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			began := time.Now()
			undo, err := connectBridge(cmd.Context(), c.Address)
			if err != nil {
				return err
			}
			err = controlplane.Run(cmd.Context(), c, func(server string) {
				fmt.Fprintf(cmd.OutOrStdout(), "ready after %.1fs: %s\nkubeconfig: %s\n", time.Since(began).Seconds(), server, c.AdminKubeconfig())
			})
			return errors.Join(err, undo())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "control-plane", "folder for certificates, kubeconfigs and data; an existing one is continued")
	f.StringVar(&c.Address, "address", "127.0.0.1", "loopback address to serve on; 10.250.0.1 makes the bridge for a real node, as root")
	f.IntVar(&c.Port, "port", 0, "port of the API server; 0 keeps the last one or takes a free one")
	f.DurationVar(&c.SigningDuration, "signing-duration", 0, "how long certificates signed for nodes are valid; 0 means a year")
	f.BoolVar(&c.ApproveServing, "approve-serving", false, "approve the nodes' serving certificates while some node is alive")
	f.BoolVar(&c.APIOnly, "api-only", false, "leave out the controller manager and the scheduler")
	return cmd
}
