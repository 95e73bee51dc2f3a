// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/hollownode"
)

func nodeCommand() *cobra.Command {
	var c hollownode.Config
	var r realNode
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run a hollow node with the kubelet's own certificate managers, or a real one with containers",
		Example: `  # Join a control plane; the first client certificate waits for approval
  local node --name n1 --address 127.77.0.4 --dir ./n1 --bootstrap-kubeconfig ./target/bootstrap.kubeconfig

  # A real node, as root, for a control plane on the bridge
  local control-plane --dir ./target --address 10.250.0.1 &
  local node --real --name n1 --dir ./n1 --control-plane ./target`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if r.wanted {
				r.name, r.dir = c.Name, c.Dir
				return r.runNode(cmd.Context(), cmd.OutOrStdout())
			}
			return hollownode.RunNode(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Name, "name", "", "name of the node")
	f.StringVar(&c.Address, "address", "127.0.0.1", "loopback address that is the node's InternalIP")
	f.StringVar(&c.Dir, "dir", "node", "folder for the node's certificates")
	f.StringVar(&c.Bootstrap, "bootstrap-kubeconfig", "", "kubeconfig with the bootstrap token")
	f.DurationVar(&c.Heartbeat, "heartbeat", 3*time.Second, "interval of lease renewals and status reports")
	f.DurationVar(&c.Hold, "hold", 0, "wait this long before starting, as a slow boot does")
	f.StringVar(&c.HoldFile, "hold-file", "", "wait before starting for as long as this file exists")
	f.BoolVar(&r.wanted, "real", false, "run containerd, the kubelet, kube-proxy and CoreDNS; needs root and make node-parts")
	f.StringVar(&r.controlPlane, "control-plane", "control-plane", "folder of the control plane that a real node joins")
	f.StringVar(&r.parts, "parts", ".cache/node", "folder that make node-parts has filled, for a real node")
	f.StringSliceVar(&r.images, "image", nil, "image files to import into a real node; its pause image comes by itself")
	return cmd
}

// realNode are the flags of a node with containers.
type realNode struct {
	wanted                         bool
	name, dir, controlPlane, parts string
	images                         []string
}
