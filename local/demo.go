// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/stage"
)

func demoFlags(cmd *cobra.Command, c *stage.Config) {
	f := cmd.Flags()
	f.StringVar(&c.Torpor, "torpor", "", "path of the torpor program; beside this program if empty")
	f.StringVar(&c.CRDs, "crds", "config/crd", "folder of the custom resource definitions")
	f.DurationVar(&c.Latency, "latency", 3*time.Second, "how long the cloud takes to start or to stop a machine")
}

func completeDemo(cmd *cobra.Command, c *stage.Config) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	bin := filepath.Dir(program)
	c.Local, c.Kubectl = program, filepath.Join(bin, "kubectl")
	if c.Torpor == "" {
		c.Torpor = filepath.Join(bin, "torpor")
	}
	c.Out = cmd.OutOrStdout()
	info, err := os.Stdout.Stat()
	c.Colour = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
	return nil
}

func demoCommand() *cobra.Command {
	var c stage.Config
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Hibernate and wake a real cluster, and print what was observed",
		Long: `Hibernate and wake a real cluster, and print what was observed.

Exit codes: 0 if all of it was observed, 1 otherwise. Everything that was started is stopped in any case.`,
		Example: `  local demo --dir .cache/demo`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeDemo(cmd, &c); err != nil {
				return err
			}
			return stage.Demo(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&c.Dir, "dir", "demo", "folder for everything that the demo makes; emptied first")
	cmd.Flags().DurationVar(&c.Certificates, "certificates", time.Minute, "how long the nodes' certificates are valid")
	demoFlags(cmd, &c)
	return cmd
}
