// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/controlplane"
	"github.com/torpor-dev/torpor/local/debian"
	"github.com/torpor-dev/torpor/local/gateway"
	"github.com/torpor-dev/torpor/local/hollownode"
	"github.com/torpor-dev/torpor/local/targetcluster"
)

func controlPlaneCommand() *cobra.Command {
	var c controlplane.Config
	cmd := &cobra.Command{
		Use:   "control-plane",
		Short: "Run etcd, kube-apiserver, kube-controller-manager and kube-scheduler in one process",
		Example: `  # A hub with its data in ./hub; prints the path of its kubeconfig when it is ready
  local control-plane --dir ./hub

  # A cluster whose nodes' certificates are valid for 90 seconds
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
	f.StringVar(&c.Dir, "dir", "control-plane", "folder for certificates, kubeconfigs and data; the data in an existing folder is used")
	f.StringVar(&c.Address, "address", "127.0.0.1", "loopback address to serve on; 10.250.0.1 creates the bridge for a real node, as root")
	f.IntVar(&c.Port, "port", 0, "port of the API server; 0 means the port of the last start, or a free port at the first start")
	f.DurationVar(&c.SigningDuration, "signing-duration", 0, "how long certificates signed for nodes are valid; 0 means a year")
	f.BoolVar(&c.ApproveServing, "approve-serving", false, "approve the nodes' serving certificates while any node is alive")
	f.BoolVar(&c.APIOnly, "api-only", false, "do not run the controller manager and the scheduler")
	f.StringVar(&c.EmulatedVersion, "emulated-version", "", "older version of Kubernetes whose APIs the API server serves, such as 1.35; empty means the version of the API server")
	return cmd
}

func nodeCommand() *cobra.Command {
	var c hollownode.Config
	var r realNode
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run a hollow node with the kubelet's own certificate managers, or a real node with containers",
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
	f.StringVar(&c.PodNetwork, "pod-network", "", "folder in which the ports of Pods answer with the Pod's name and labels; local gateway reaches them there")
	f.DurationVar(&c.Hold, "hold", 0, "delay of the start, which simulates a slow boot")
	f.StringVar(&c.HoldFile, "hold-file", "", "delay the start for as long as this file exists")
	f.BoolVar(&r.wanted, "real", false, "run containerd, the kubelet, kube-proxy and CoreDNS; needs root and make node-parts")
	f.StringVar(&r.controlPlane, "control-plane", "control-plane", "folder of the control plane that a real node joins")
	f.StringVar(&r.parts, "parts", ".cache/node", "folder that make node-parts has filled, for a real node")
	f.StringSliceVar(&r.images, "image", nil, "image files to import into a real node; its pause image is imported automatically")
	return cmd
}

func gatewayCommand() *cobra.Command {
	var c gateway.Config
	cmd := &cobra.Command{
		Use:     "gateway",
		Short:   "Serve the HTTPRoutes of a Gateway, for tests and demos",
		Example: `  local gateway --kubeconfig ./hub/admin.kubeconfig --gateway infra/apps --address 127.0.0.1:8080`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return gateway.RunGateway(cmd.Context(), c, func(address string) { fmt.Fprintf(cmd.OutOrStdout(), "address: %s\n", address) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig with permission to list HTTPRoutes and EndpointSlices, and to write the status of HTTPRoutes")
	f.StringVar(&c.Gateway, "gateway", "infra/apps", "namespace and name of the Gateway whose routes are served; the Gateway need not exist")
	f.StringVar(&c.Address, "address", "127.0.0.1:0", "loopback address to serve on; port 0 selects a free port, which is printed")
	f.StringVar(&c.PodNetwork, "pod-network", "", "folder with the sockets of the Pods of hollow nodes")
	return cmd
}

type realNode struct {
	wanted                         bool
	name, dir, controlPlane, parts string
	images                         []string
}

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Create target clusters from machines of the simulated cloud"}
	cmd.AddCommand(clusterCreateCommand())
	return cmd
}

func clusterCreateCommand() *cobra.Command {
	var c targetcluster.Config
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Run a control-plane machine and nodes, and register them in the hub",
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
				fmt.Fprintf(out, "the hub does not serve ClusterDeployments yet; apply %s when it does\n", r.Manifest)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Namespace, "namespace", "default", "namespace of the ClusterDeployment")
	f.StringVar(&c.Dir, "dir", "", "folder of the machines' disks; if empty, a folder with the name of the cluster")
	f.StringVar(&c.HubKubeconfig, "hub", "", "kubeconfig of the hub")
	f.StringVar(&c.Cloud, "cloud", "", "endpoint of the simulated cloud")
	f.StringVar(&c.Region, "region", "local-1", "region of the cloud")
	f.StringVar(&c.AccessKey, "access-key", "AKIALOCAL", "access key id of the cloud")
	f.StringVar(&c.Version, "version", "4.16.3", "OpenShift version in a label of the ClusterDeployment")
	f.IntVar(&c.Nodes, "nodes", 2, "number of nodes")
	f.DurationVar(&c.Certificates, "certificates", time.Hour, "how long the nodes' certificates are valid")
	f.DurationVar(&c.Heartbeat, "heartbeat", 3*time.Second, "interval of the nodes' heartbeats")
	f.StringVar(&c.HoldFile, "hold-file", "", "delay the start of the nodes on started machines for as long as this file exists")
	return cmd
}

func mysqlCommand() *cobra.Command {
	return packagesCommand("mysql", "a real MySQL server", debian.FetchMySQL)
}

func novaCommand() *cobra.Command {
	return packagesCommand("nova", "OpenStack's real compute service", debian.FetchNova)
}

func libvirtCommand() *cobra.Command {
	return packagesCommand("libvirt", "a real libvirtd with QEMU", debian.FetchLibvirt)
}

func engineCommand() *cobra.Command {
	return packagesCommand("engine", "a real container engine", debian.FetchEngine)
}

func bmcCommand() *cobra.Command {
	return packagesCommand("bmc", "a simulator of management controllers", debian.FetchBMC)
}

func guestCommand() *cobra.Command {
	return packagesCommand("guest", "the system of a virtual machine that is a node", debian.FetchGuest)
}

// packagesCommand returns a command that fetches packages of Debian for tests.
func packagesCommand(name, what string, fetch func(ctx context.Context, dir string, out io.Writer) error) *cobra.Command {
	var dir string
	var optional bool
	c := &cobra.Command{
		Use:     name,
		Short:   "Fetch " + what + " into a folder; nothing is installed",
		Example: "  local " + name + " --dir .cache/" + name + "\n  local " + name + " --dir .cache/" + name + " --optional",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			err := fetch(c.Context(), dir, c.OutOrStdout())
			if optional && errors.Is(err, debian.ErrUnavailable) {
				fmt.Fprintf(c.OutOrStdout(), "no %s, so the tests that need it are skipped: %v\n", name, err)
				return nil
			}
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", ".cache/"+name, "folder for the fetched programs")
	c.Flags().BoolVar(&optional, "optional", false, "do not fail if Debian's packages are unavailable")
	return c
}
