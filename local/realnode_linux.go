// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/background"
	"github.com/torpor-dev/torpor/local/demo/mysql"
	"github.com/torpor-dev/torpor/local/images"
	"github.com/torpor-dev/torpor/local/podcluster"
	"github.com/torpor-dev/torpor/local/realnode"
)

// realCommands returns the commands for nodes with real containers, which exist only on Linux.
func realCommands() []*cobra.Command {
	return []*cobra.Command{podsCommand(), nodePartsCommand(), bootNodeCommand(), mysqlDemoCommand()}
}

// connectBridge creates the bridge if a control plane serves on its address.
func connectBridge(ctx context.Context, address string) (func() error, error) {
	if address != realnode.HostAddress {
		return func() error { return nil }, nil
	}
	return realnode.ConnectBridge(ctx)
}

func programsFolder() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return filepath.Dir(program), nil
}

func (r realNode) runNode(ctx context.Context, out io.Writer) error {
	folder, err := programsFolder()
	if err != nil {
		return err
	}
	for _, path := range []*string{&r.dir, &r.controlPlane, &r.parts} {
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("resolve folder: %w", err)
		}
	}
	pause := filepath.Join(r.parts, "images", "pause.tar")
	if err := images.NewPause(filepath.Join(folder, "pause")).WriteFile(pause); err != nil {
		return err
	}
	began := time.Now()
	c := realnode.Config{Name: r.name, Dir: r.dir, ControlPlane: r.controlPlane, Parts: r.parts, Programs: folder, Images: append(r.images, pause)}
	return realnode.RunNode(ctx, c, out, func() { fmt.Fprintf(out, "node %s is Ready after %.1fs\n", r.name, time.Since(began).Seconds()) })
}

func nodePartsCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:     "node-parts",
		Short:   "Fetch containerd and the other parts of a real node into a folder; nothing is installed",
		Example: "  local node-parts --dir .cache/node",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return realnode.FetchParts(c.Context(), dir, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&dir, "dir", ".cache/node", "folder into which the parts are fetched")
	return c
}

// bootNodeCommand is the command with which a real node starts its first process. Users do not need it.
func bootNodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    realnode.BootCommand,
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return realnode.BootNode(c.Context(), args[0], c.OutOrStdout())
		},
	}
}

var errUnready = errors.New("expected the parts of a real node, found an incomplete set; run make node-parts and make mysql")

func podsCommand() *cobra.Command {
	c := &cobra.Command{Use: "pods", Short: "Run a cluster with real pods on this machine, as root"}
	c.AddCommand(podsUpCommand(), podsDownCommand())
	return c
}

func podsUpCommand() *cobra.Command {
	var c podcluster.Config
	var foreground bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a control plane and a real node, with Services, DNS, volumes and images of this tree",
		Long: `Start a control plane and a real node with containerd, Services, DNS and volumes, and keep them in the background.
The images are localhost/mysql:9.7, localhost/torpor:dev, localhost/webapp:1 and localhost/busybox:1; use them with imagePullPolicy: IfNotPresent.

Exit codes: 0 when the cluster is ready, 1 otherwise.`,
		Example: "  local pods up --dir .cache/pods\n  kubectl --kubeconfig .cache/pods/admin.kubeconfig get pods -A\n  local pods down --dir .cache/pods",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Programs, err = programsFolder(); err != nil {
				return err
			}
			c.Out = cmd.OutOrStdout()
			if foreground {
				return podcluster.RunCluster(cmd.Context(), c)
			}
			return detachPods(cmd, c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "pods", "folder for all created files; files of an earlier cluster are removed first")
	f.StringVar(&c.Parts, "parts", ".cache/node", "folder that make node-parts has filled")
	f.StringVar(&c.MySQL, "mysql", ".cache/mysql", "folder that make mysql has filled")
	f.BoolVar(&foreground, "foreground", false, "stay in the foreground until interrupted")
	return cmd
}

func detachPods(cmd *cobra.Command, c podcluster.Config) error {
	if !realnode.IsFetched(c.Parts) {
		return errUnready
	}
	b, err := background.NewProgram(c.Dir, podcluster.ReadyFile)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out, "starting a control plane and a real node: about 10 seconds, 20 the first time or after a kill")
	argv := []string{filepath.Join(c.Programs, "local"), "pods", "up", "--foreground", "--dir", b.Dir, "--parts", c.Parts, "--mysql", c.MySQL}
	if err := b.Start(cmd.Context(), argv...); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "the cluster is ready for real pods. Try:\n\n  export KUBECONFIG=%s/admin.kubeconfig PATH=%s:$PATH\n  kubectl get pods -A\n\nStop everything with: %s\n", b.Dir, c.Programs, describeStop(b.Dir))
	return nil
}

// describeStop returns the command that stops the cluster in a folder. The folder of make pods-up has its own make
// target.
func describeStop(dir string) string {
	if strings.HasSuffix(filepath.ToSlash(dir), "/.cache/pods") {
		return "make pods-down"
	}
	return "local pods down --dir " + dir
}

func podsDownCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "Stop the cluster that pods up started, and remove the leftovers of a killed cluster from the machine",
		Example: "  local pods down --dir .cache/pods",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := stopBackground(cmd, dir, podcluster.ReadyFile); err != nil {
				return err
			}
			return realnode.RemoveLeftovers(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pods", "folder that was passed to pods up")
	return cmd
}

// publicImage can be pulled without credentials.
const publicImage = "docker.io/library/mysql:8.4"

func mysqlDemoCommand() *cobra.Command {
	var c mysql.Config
	cmd := demoCommand(&cobra.Command{
		Use:   "demo-mysql",
		Short: "Stop and start the clustering of a real MySQL cluster, and print what was observed",
		Long: `Stop and start the clustering and the reconciliation of a real MySQL cluster, and print what was observed: with real
pods on this machine, as root on Debian, or in the cluster of --kubeconfig, in which Torpor has to run.

Exit codes: 0 if every expected result was observed, 1 otherwise. Everything that was created is removed in any case.`,
		Example: "  local demo-mysql --dir .cache/demo-mysql\n  local demo-mysql --kubeconfig ~/.kube/config",
	}, &c.Config, "demo-mysql", func(cmd *cobra.Command) error {
		switch {
		case c.Image != "":
		case c.Kubeconfig != "":
			c.Image = publicImage
		default:
			c.Image = images.MySQL
		}
		return mysql.RunDemo(cmd.Context(), c)
	})
	f := cmd.Flags()
	f.Lookup("dir").Usage = "folder for the cluster with real pods"
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig of a cluster in which Torpor runs; empty means real pods on this machine")
	f.StringVar(&c.Image, "image", "", "image of the MySQL server; "+publicImage+" if a kubeconfig is given")
	f.StringVar(&c.Parts, "parts", ".cache/node", "folder that make node-parts has filled")
	f.StringVar(&c.MySQL, "mysql", ".cache/mysql", "folder that make mysql has filled")
	f.StringVar(&c.ConfigDir, "config", "config", "folder that contains crd, the folder of the CustomResourceDefinitions")
	return cmd
}
