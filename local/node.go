// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/node"
)

func nodeCommand() *cobra.Command {
	var c node.Config
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run a hollow node with the kubelet's own certificate managers",
		Example: `  # Join a control plane; the first client certificate waits for approval
  local node --name n1 --address 127.77.0.4 --dir ./n1 --bootstrap-kubeconfig ./target/bootstrap.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return node.Run(cmd.Context(), c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.Name, "name", "", "name of the node")
	f.StringVar(&c.Address, "address", "127.0.0.1", "loopback address that is the node's InternalIP")
	f.StringVar(&c.Dir, "dir", "node", "folder for the node's certificates")
	f.StringVar(&c.Bootstrap, "bootstrap-kubeconfig", "", "kubeconfig with the bootstrap token")
	f.DurationVar(&c.Heartbeat, "heartbeat", 3*time.Second, "interval of lease renewals and status reports")
	f.DurationVar(&c.Hold, "hold", 0, "wait this long before starting, as a slow boot does")
	f.StringVar(&c.HoldFile, "hold-file", "", "wait before starting for as long as this file exists")
	return cmd
}
