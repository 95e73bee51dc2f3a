// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/mysqlstory"
)

// ordinaryImage is what everybody can pull.
const ordinaryImage = "docker.io/library/mysql:8.4"

func demoMySQLCommand() *cobra.Command {
	var c mysqlstory.Config
	cmd := &cobra.Command{
		Use:   "demo-mysql",
		Short: "Stop and start the clustering of a real MySQL cluster, and print what was observed",
		Long: `Stop and start the clustering and the reconciliation of a real MySQL cluster, and print what was observed: with real
pods on this machine, as root on Debian, or in the cluster of --kubeconfig, in which Torpor has to run.

Exit codes: 0 if all of it was observed, 1 otherwise. Everything that was made is removed in any case.`,
		Example: "  local demo-mysql --dir .cache/demo-mysql\n  local demo-mysql --kubeconfig ~/.kube/config",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := programs()
			if err != nil {
				return err
			}
			c.Local, c.Out = filepath.Join(folder, "local"), cmd.OutOrStdout()
			if c.Torpor == "" {
				c.Torpor = filepath.Join(folder, "torpor")
			}
			switch {
			case c.Image != "":
			case c.Kubeconfig != "":
				c.Image = ordinaryImage
			default:
				c.Image = "localhost/mysql:9.7"
			}
			info, err := os.Stdout.Stat()
			c.Colour = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
			return mysqlstory.Run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "demo-mysql", "folder for the cluster with real pods")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "a cluster in which Torpor runs; empty means real pods on this machine")
	f.StringVar(&c.Image, "image", "", "image of the MySQL server; "+ordinaryImage+" if a kubeconfig is given")
	f.StringVar(&c.Torpor, "torpor", "", "path of the torpor program; beside this program if empty")
	f.StringVar(&c.Parts, "parts", ".cache/node", "folder that make node-parts has filled")
	f.StringVar(&c.MySQL, "mysql", ".cache/mysql", "folder that make mysql has filled")
	f.StringVar(&c.ConfigDir, "config", "config", "folder with crd in it")
	return cmd
}
